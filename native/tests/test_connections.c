/* The connection table and the frame's counters. */
#define _GNU_SOURCE 1
#include <pthread.h>
#include <sched.h>
#include <string.h>

#include "atomics.h"
#include "check.h"
#include "whichrank/transport.h"

static wr_endpoints to_port(uint16_t port) {
  wr_endpoints e = {.local_addr = {1}, .remote_addr = {2}, .local_port = 1000, .remote_port = port};
  return e;
}

TEST(connection_is_opened_once_and_keeps_its_counts_when_closed) {
  wr_ring *ring = ring_new();
  wr_endpoints a = to_port(1), b = to_port(2);
  int row = wr_connection_open(ring->connection, &a, 9);
  CHECK_EQUAL(wr_connection_open(ring->connection, &a, 10), row); /* a duplicate of the descriptor */
  CHECK(wr_connection_open(ring->connection, &b, 11) != row);
  wr_connection *c = &ring->connection[row], copy;
  wr_connection_count(c, 0, 100, 5);
  wr_connection_count(c, 1, 30, 7);
  wr_connection_count(c, 1, 30, 8);
  REQUIRE(read_row(c, &copy, sizeof copy));
  CHECK(copy.messages_sent == 1 && copy.bytes_sent == 100 && copy.messages_received == 2 && copy.bytes_received == 60);
  CHECK(copy.last_send_ns == 5 && copy.last_receive_ns == 8 && copy.fd == 9 && copy.remote_port == 1);
  wr_connection_close(c);
  wr_connection_close(c);
  CHECK(c->state == WR_CONNECTION_CLOSED && c->messages_sent == 1 && !(c->version & 1));
  CHECK(wr_connection_open(ring->connection, &a, 9) != row); /* the same ends again are another connection */
}

TEST(connection_sums_up_the_pace_at_which_data_came_in) {
  enum { MS = 1000 * 1000 };
  wr_ring *ring = ring_new();
  wr_endpoints a = to_port(1);
  wr_connection *c = &ring->connection[wr_connection_open(ring->connection, &a, 9)];
  wr_connection_count(c, 1, 100, 5 * MS);    /* the first: nobody knows since when it was there */
  wr_connection_count(c, 0, 5000, 6 * MS);   /* sent: another matter */
  wr_connection_count(c, 1, 1000, 7 * MS);   /* 500,000 bytes per second */
  wr_connection_count(c, 1, 1000, 9 * MS);
  wr_connection_count(c, 1, 1000000, 10 * MS); /* a billion */
  wr_connection_count(c, 1, 1000, 10 * MS);  /* at once */
  wr_connection_count(c, 1, 1000, 20 * MS);  /* after a pause something new begins */
  wr_connection_count(c, 1, 1, 29 * MS);     /* slower than all classes */
  uint64_t bytes = 0, ns = 0;
  for (int i = 0; i < WR_PACES; i++) bytes += c->pace[i].bytes, ns += c->pace[i].ns;
  CHECK_EQUAL(bytes, 1002001);
  CHECK_EQUAL(ns, 14 * MS);
  wr_pace *slow = &c->pace[wr_pace_class(1000, 2 * MS)], *fast = &c->pace[wr_pace_class(1000000, MS)];
  CHECK(slow->bytes == 2000 && slow->ns == 4 * MS && fast->bytes == 1000000 && fast->ns == MS && slow < fast);
  CHECK(c->pace[0].bytes == 1 && c->pace[0].ns == 9 * MS);
  wr_endpoints b = to_port(2000);
  wr_connection *other = &ring->connection[wr_connection_open(ring->connection, &b, 10)];
  wr_connection_count(other, 1, 500, 40 * MS);
  wr_connection_count(other, 1, 1000, 42 * MS);
  wr_pace all[WR_PACES];
  wr_arrivals(ring, all); /* of all connections */
  wr_pace *both = &all[wr_pace_class(1000, 2 * MS)];
  CHECK(both->bytes == 3000 && both->ns == 6 * MS && all[0].bytes == 1 && all[wr_pace_class(1000000, MS)].ns == MS);
  wr_connection_close(c);
  for (uint16_t i = 2; i < WR_CONNECTIONS + 2; i++) { /* the row is given to another connection */
    wr_endpoints e = to_port(i);
    wr_connection_open(ring->connection, &e, i);
  }
  CHECK(c->remote_port != 1 && !slow->bytes && !fast->ns);
}

TEST(pace_classes_ascend_and_hold_every_pace) {
  CHECK_EQUAL(wr_pace_class(0, WR_PACE_NS), 0);
  CHECK_EQUAL(wr_pace_class(UINT64_MAX, 1), WR_PACES - 1);
  int before = 0;
  for (uint64_t bytes = 1; bytes < UINT64_C(1) << 40; bytes *= 2) {
    int class = wr_pace_class(bytes, 1000 * 1000);
    CHECK(class >= before && class <= before + 1);
    before = class;
  }
  CHECK_EQUAL(before, WR_PACES - 1);
}

TEST(connection_table_full_reuses_the_one_closed_longest_ago) {
  wr_ring *ring = ring_new();
  for (uint16_t i = 0; i < WR_CONNECTIONS; i++) {
    wr_endpoints e = to_port(i);
    CHECK_EQUAL(wr_connection_open(ring->connection, &e, i), i);
    wr_connection_count(&ring->connection[i], 0, 1, 1000 - i);
  }
  wr_endpoints e = to_port(9999);
  CHECK_EQUAL(wr_connection_open(ring->connection, &e, 1), -1);
  wr_connection_close(&ring->connection[3]);
  wr_connection_close(&ring->connection[200]); /* its last message is older */
  CHECK_EQUAL(wr_connection_open(ring->connection, &e, 1), 200);
  CHECK(ring->connection[200].messages_sent == 0 && ring->connection[200].remote_port == 9999);
}

enum { THREADS = 4, EACH = 3000 };
static wr_ring *shared;

static void *open_and_close(void *number) {
  for (int i = 0; i < EACH; i++) {
    wr_endpoints e = to_port((uint16_t)((uintptr_t)number * 10000 + (unsigned)i));
    int row = wr_connection_open(shared->connection, &e, i);
    if (row < 0) {
      test_fail(__FILE__, __LINE__, "a row was free");
      continue;
    }
    wr_connection *c = &shared->connection[row];
    wr_connection_count(c, 0, 1, (uint64_t)i + 1);
    CHECK(LOAD(&c->state) == WR_CONNECTION_OPEN && wr_connection_is(c, &e)); /* nobody else got it */
    CHECK_EQUAL(LOAD(&c->messages_sent), 1);
    wr_connection_close(c);
  }
  return NULL;
}

TEST(connection_rows_are_never_shared_by_two_threads) {
  pthread_t thread[THREADS];
  shared = ring_new();
  for (uintptr_t i = 0; i < THREADS; i++) pthread_create(&thread[i], NULL, open_and_close, (void *)i);
  for (int i = 0; i < THREADS; i++) pthread_join(thread[i], NULL);
  for (int i = 0; i < WR_CONNECTIONS; i++) CHECK(shared->connection[i].state != WR_CONNECTION_OPEN);
}

TEST(frame_counts_seven_peers_and_the_rest) {
  wr_ring *ring = ring_new();
  int slot = comm_new(ring, 8);
  wr_op op = op_new(slot, WR_ALL_REDUCE, -1);
  wr_op_begin(ring, &op);
  uint64_t at = ring->frame.kernel_index;
  CHECK(ring->frame.op_counter == 1 && at == 1 && ring->frame.channels == 8);
  CHECK(ring->frame.block[at].trace_id.counter == 1 && ring->frame.block[at].trace_id.comm_id == op.comm_id);
  for (int connection = 20; connection < 30; connection++)
    for (int i = 0; i <= connection; i++) wr_frame_count(ring, connection, i & 1);
  for (int channel = 0; channel < 7; channel++) {
    CHECK_EQUAL(ring->frame_peer[at][channel], 21 + channel);
    CHECK_EQUAL(ring->frame.block[at].channel[channel].send_count, (21 + channel) - (20 + channel + 1) / 2);
  }
  wr_frame_count(ring, -1, 0);
  CHECK_EQUAL(ring->frame.block[at].channel[7].send_count + ring->frame.block[at].channel[7].recv_count, 28 + 29 + 30 + 1);
  CHECK_EQUAL(ring->frame_peer[at][7], 0);
  wr_op next = op_new(slot, WR_ALL_REDUCE, -1);
  wr_op_begin(ring, &next);
  wr_frame_count(ring, 25, 0);
  CHECK(ring->frame.kernel_index == 2 && ring->frame.block[2].channel[0].send_count == 1 && ring->frame_peer[2][0] == 26);
  for (int i = 0; i < 7; i++) { /* the block comes round again, clean */
    wr_op more = op_new(slot, WR_ALL_REDUCE, -1);
    wr_op_begin(ring, &more);
  }
  CHECK(ring->frame.kernel_index == 1 && !ring->frame.block[1].channel[0].send_count && !ring->frame_peer[1][0]);
  CHECK_EQUAL(ring->frame.block[1].trace_id.counter, 9);
}

static void *count_into_frame(void *connection) {
  for (int i = 0; i < 20000; i++) wr_frame_count(shared, (int)(intptr_t)connection, 1);
  return NULL;
}

TEST(frame_threads_lose_no_count) {
  pthread_t thread[10];
  shared = ring_new();
  wr_op op = op_new(comm_new(shared, 8), WR_ALL_REDUCE, -1);
  wr_op_begin(shared, &op);
  for (intptr_t i = 0; i < 10; i++) pthread_create(&thread[i], NULL, count_into_frame, (void *)(i / 2 * 7));
  for (int i = 0; i < 10; i++) pthread_join(thread[i], NULL);
  for (int channel = 0; channel < 5; channel++)
    CHECK_EQUAL(shared->frame.block[1].channel[channel].recv_count, 40000);
}
