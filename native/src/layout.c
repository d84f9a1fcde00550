/* The layout told as JSON, so that a test can hold Python's view against the compiler's. */
#include <stddef.h>
#include <stdio.h>

#include "whichrank/ring.h"

#define SIZE(type) at += snprintf(text + at, sizeof text - (size_t)at, "\"sizeof.%s\":%zu,", #type, sizeof(type))
#define OFFSET(type, field) \
  at += snprintf(text + at, sizeof text - (size_t)at, "\"%s.%s\":%zu,", #type, #field, offsetof(type, field))
#define VALUE(name) at += snprintf(text + at, sizeof text - (size_t)at, "\"%s\":%llu,", #name, (unsigned long long)(name))

const char *wr_layout_json(void) {
  static char text[16384];
  int at = snprintf(text, sizeof text, "{");
  VALUE(WR_MAGIC); VALUE(WR_VERSION); VALUE(WR_COMMS); VALUE(WR_INFLIGHT); VALUE(WR_WAITS); VALUE(WR_PAIRS);
  VALUE(WR_CONNECTIONS); VALUE(WR_PACES); VALUE(WR_SPLITS); VALUE(WR_SPLIT_ROWS); VALUE(WR_MEMBERS); VALUE(WR_RECORDS); VALUE(WR_COMM_WINDOW); VALUE(WR_PAIR_WINDOW);
  VALUE(WR_PASSES); VALUE(WR_SIZES); VALUE(WR_RESULTS); SIZE(wr_gate); SIZE(wr_pass);
  SIZE(wr_shares); SIZE(wr_share); OFFSET(wr_ring, shares); OFFSET(wr_shares, newest); OFFSET(wr_shares, used);
  OFFSET(wr_shares, microbatches); OFFSET(wr_shares, replicas);
  SIZE(wr_places); OFFSET(wr_ring, places); OFFSET(wr_places, newest); OFFSET(wr_places, used);
  OFFSET(wr_places, place); OFFSET(wr_places, ranks); OFFSET(wr_places, bytes);
  SIZE(wr_header); SIZE(wr_frame); SIZE(wr_block); SIZE(wr_channel); SIZE(wr_inflight); SIZE(wr_wait); SIZE(wr_pair); SIZE(wr_splits);
  SIZE(wr_connection); SIZE(wr_pace); SIZE(wr_comm); SIZE(wr_record); SIZE(wr_ring); SIZE(wr_sensor_status); SIZE(wr_op);
  OFFSET(wr_ring, header); OFFSET(wr_ring, frame); OFFSET(wr_ring, frame_peer); OFFSET(wr_ring, inflight_used);
  OFFSET(wr_ring, waits_used); OFFSET(wr_ring, splits_head); OFFSET(wr_ring, step_tid); OFFSET(wr_ring, gate_closed); OFFSET(wr_ring, gate); OFFSET(wr_ring, splits);
  OFFSET(wr_ring, inflight); OFFSET(wr_ring, wait); OFFSET(wr_ring, pair);
  OFFSET(wr_ring, connection); OFFSET(wr_ring, comm); OFFSET(wr_ring, members); OFFSET(wr_ring, record);
  OFFSET(wr_header, pid); OFFSET(wr_header, pid_start_ticks); OFFSET(wr_header, heartbeat_ns);
  OFFSET(wr_header, closed_ns); OFFSET(wr_header, head); OFFSET(wr_header, ordinal);
  OFFSET(wr_header, dropped_records); OFFSET(wr_header, exception_ns); OFFSET(wr_header, first_failure_ns);
  OFFSET(wr_header, phase_since_ns); OFFSET(wr_header, members_used); OFFSET(wr_header, init_ns); OFFSET(wr_header, collected_ns);
  OFFSET(wr_header, host); OFFSET(wr_header, job); OFFSET(wr_header, phase); OFFSET(wr_header, exception);
  OFFSET(wr_header, failure); OFFSET(wr_header, sensor);
  OFFSET(wr_comm, state); OFFSET(wr_comm, comm_id); OFFSET(wr_comm, epoch); OFFSET(wr_comm, size);
  OFFSET(wr_comm, first); OFFSET(wr_comm, members_at); OFFSET(wr_comm, last_tid); OFFSET(wr_comm, issued);
  OFFSET(wr_comm, done); OFFSET(wr_comm, completed); OFFSET(wr_comm, timeout_ms); OFFSET(wr_comm, backend);
  OFFSET(wr_comm, name); OFFSET(wr_comm, desc); OFFSET(wr_comm, done_bits);
  OFFSET(wr_inflight, trace_id); OFFSET(wr_inflight, t_issue_ns); OFFSET(wr_inflight, wait_since_ns);
  OFFSET(wr_inflight, count); OFFSET(wr_inflight, signature); OFFSET(wr_inflight, issue_tid);
  OFFSET(wr_inflight, peer); OFFSET(wr_inflight, comm_slot); OFFSET(wr_inflight, flags);
  OFFSET(wr_inflight, polled_ns); OFFSET(wr_inflight, out_count); OFFSET(wr_splits, comm_id); OFFSET(wr_splits, counter);
  OFFSET(wr_splits, splits); OFFSET(wr_splits, count); OFFSET(wr_splits, split_in); OFFSET(wr_splits, split_out);
  OFFSET(wr_wait, since_ns); OFFSET(wr_wait, comm_id); OFFSET(wr_wait, counter); OFFSET(wr_wait, comm_slot);
  OFFSET(wr_wait, how); OFFSET(wr_wait, count); OFFSET(wr_wait, t_issue_ns);
  OFFSET(wr_pair, issued); OFFSET(wr_pair, comm_slot); OFFSET(wr_pair, kind); OFFSET(wr_pair, peer);
  OFFSET(wr_pair, last_tid); OFFSET(wr_pair, done_bits);
  OFFSET(wr_connection, state); OFFSET(wr_connection, local_port); OFFSET(wr_connection, messages_sent);
  OFFSET(wr_connection, last_receive_ns); OFFSET(wr_connection, pace);
  OFFSET(wr_record, t_issue_ns); OFFSET(wr_record, count); OFFSET(wr_record, counter); OFFSET(wr_record, wait_us);
  OFFSET(wr_record, comm_slot); OFFSET(wr_record, status);
  OFFSET(wr_gate, at_ordinal); OFFSET(wr_gate, test); OFFSET(wr_gate, test_bytes); OFFSET(wr_gate, test_pass);
  OFFSET(wr_gate, steps); OFFSET(wr_gate, arrived_ns); OFFSET(wr_gate, opened); OFFSET(wr_gate, result_s);
  OFFSET(wr_gate, problem);
  text[at - 1] = '}';
  return text;
}
