/* Operations: counters, rows in flight, waits, completions out of order, send/recv pairs, the frame. */
#define _GNU_SOURCE 1
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "atomics.h"
#include "check.h"
#include "internal.h"

static wr_op *begin_many(wr_ring *ring, int slot, int kind, int n) {
  wr_op *ops = calloc((size_t)n, sizeof *ops);
  for (int i = 0; i < n; i++) {
    ops[i] = op_new(slot, kind, kind >= WR_SEND ? 5 : -1);
    wr_op_begin(ring, &ops[i]);
  }
  return ops;
}

static void shuffle(int *order, int n, uint64_t seed) {
  for (int i = 0; i < n; i++) order[i] = i;
  for (int i = n - 1; i > 0; i--) {
    int j = (int)(random_next(&seed) % (uint64_t)(i + 1)), t = order[i];
    order[i] = order[j];
    order[j] = t;
  }
}

TEST(op_leaves_one_record_and_counts) {
  wr_ring *ring = ring_new();
  int slot = comm_new(ring, 8);
  wr_op op = op_new(slot, WR_ALL_REDUCE, -1);
  op.dtype = 6, op.reduce_op = 2, op.flags = WR_FLAG_ASYNC;
  wr_op_begin(ring, &op);
  CHECK(ring->comm[slot].issued == 1 && ring->comm[slot].completed == 0 && ring->comm[slot].done == 0);
  wr_inflight row;
  CHECK(read_row(&ring->inflight[op.row], &row, sizeof row));
  CHECK(row.state == 1 && row.trace_id.counter == 1 && row.trace_id.comm_id == ring->comm[slot].comm_id);
  CHECK(row.kind == WR_ALL_REDUCE && row.dtype == 6 && row.flags == WR_FLAG_ASYNC && row.count == 7);
  CHECK(row.issue_tid == (uint32_t)gettid());
  wr_op_issued(ring, &op);
  CHECK(ring->inflight[op.row].state == 2 && ring->inflight[op.row].t_return_ns >= op.t_issue_ns);
  wr_op_polled(ring, &op);
  CHECK(ring->inflight[op.row].polled_ns >= op.t_issue_ns);
  wr_op_end(ring, &op, WR_DONE);
  wr_op_end(ring, &op, WR_DROPPED); /* idempotent */
  CHECK(op.ended && ring->inflight_used == 0 && ring->inflight[op.row].state == 0);
  CHECK(ring->comm[slot].completed == 1 && ring->comm[slot].done == 1 && ring->header.head == 1);
  wr_record r;
  REQUIRE(read_record(ring, 0, &r) == 1);
  CHECK(r.counter == 1 && r.ordinal == 1 && r.kind == WR_ALL_REDUCE && r.status == WR_DONE && r.flags == WR_FLAG_ASYNC);
  CHECK(r.t_issue_ns == op.t_issue_ns && r.t_end_ns >= r.t_issue_ns && r.count == 7 && r.dtype == 6 && r.reduce_op == 2);
}

TEST(op_that_is_polled_in_a_loop_is_waited_for) {
  enum { MS = 1000, NS = 1000 };
  wr_ring *ring = ring_new();
  int slot = comm_new(ring, 8);
  wr_op polled = op_new(slot, WR_ALL_REDUCE, -1), asked = op_new(slot, WR_ALL_REDUCE, -1);
  wr_op_begin(ring, &polled);
  wr_op_begin(ring, &asked);
  uint64_t first = wr_now_ns();
  for (int i = 0; i < 5; i++) {
    wr_op_polled(ring, &polled);
    usleep(2 * MS);
  }
  wr_op_end(ring, &polled, WR_DONE);
  uint64_t looped = wr_now_ns() - first;
  wr_op_polled(ring, &asked); /* once, and much else is done before it is asked again */
  usleep(60 * MS);
  wr_op_polled(ring, &asked);
  usleep(60 * MS);
  wr_op_end(ring, &asked, WR_DONE);
  wr_record r;
  REQUIRE(read_record(ring, 0, &r) == 1);
  CHECK(r.wait_us <= looped / NS + 1 && r.wait_us <= (r.t_end_ns - r.t_issue_ns) / NS);
  CHECK(r.wait_us >= 2 * MS || looped > 100 * MS * NS); /* a busy machine may let it sleep for longer than a loop would */
  REQUIRE(read_record(ring, 1, &r) == 1);
  CHECK_EQUAL(r.wait_us, 0);
}

TEST(op_failure_is_counted) {
  wr_ring *ring = ring_new();
  int slot = comm_new(ring, 8);
  wr_op op = op_new(slot, WR_BROADCAST, 0);
  wr_op_begin(ring, &op);
  wr_op_end(ring, &op, WR_FAILED);
  CHECK(ring->comm[slot].failed == 1 && ring->record[0].status == WR_FAILED);
}

TEST(op_splits_are_kept_beyond_its_end) {
  wr_ring *ring = ring_new();
  enum { MANY = WR_SPLITS + 4 };
  int64_t in[MANY], out[MANY];
  for (int i = 0; i < MANY; i++) in[i] = i, out[i] = 100 + i;
  wr_op op = op_new(comm_new(ring, MANY), WR_ALL_TO_ALL, -1);
  op.splits = MANY, op.split_in = in, op.split_out = out, op.count = 7, op.out_count = 9;
  wr_op_begin(ring, &op);
  wr_op_end(ring, &op, WR_DONE);
  const wr_splits *row = &ring->splits[0];
  CHECK(ring->splits_head == 1 && row->seq == 2 && row->counter == op.counter && row->comm_id == op.comm_id);
  CHECK(row->splits == WR_SPLITS && row->split_in[WR_SPLITS - 1] == WR_SPLITS - 1 && row->split_out[3] == 103);
  CHECK(row->count == 7 && row->out_count == 9);
}

TEST(op_splits_of_the_latest_are_kept_and_even_ones_have_none) {
  wr_ring *ring = ring_new();
  int slot = comm_new(ring, 8);
  for (int i = 0; i < WR_SPLIT_ROWS + 3; i++) {
    wr_op op = op_new(slot, WR_ALL_TO_ALL, -1), other = op_new(slot, WR_ALL_REDUCE, -1);
    wr_op_begin(ring, &op);
    wr_op_end(ring, &op, WR_DONE);
    wr_op_begin(ring, &other); /* no splits of these */
    wr_op_end(ring, &other, WR_DONE);
  }
  CHECK_EQUAL(ring->splits_head, WR_SPLIT_ROWS + 3);
  CHECK(ring->splits[2].counter == 2 * (WR_SPLIT_ROWS + 2) + 1 && ring->splits[3].counter == 7);
  CHECK_EQUAL(ring->splits[2].splits, 0);
}

TEST(op_more_than_64_in_flight_keep_their_counters) {
  wr_ring *ring = ring_new();
  int slot = comm_new(ring, 8), n = 100;
  wr_op *ops = begin_many(ring, slot, WR_ALL_REDUCE, n);
  CHECK_EQUAL(ring->header.dropped_inflight, n - WR_INFLIGHT);
  CHECK(ring->inflight_used == UINT64_MAX);
  for (int i = 0; i < n; i++) {
    CHECK_EQUAL(ops[i].row, i < WR_INFLIGHT ? i : -1);
    CHECK_EQUAL(!!(ops[i].flags & WR_FLAG_UNTRACKED), i >= WR_INFLIGHT);
  }
  for (int i = n - 1; i >= 0; i--) wr_op_end(ring, &ops[i], WR_DONE);
  CHECK(ring->inflight_used == 0 && ring->comm[slot].done == (uint64_t)n && ring->comm[slot].completed == (uint64_t)n);
  wr_op next = op_new(slot, WR_ALL_REDUCE, -1);
  wr_op_begin(ring, &next);
  CHECK_EQUAL(next.row, 0);
  free(ops);
}

TEST(op_completions_out_of_order_move_done_exactly) {
  wr_ring *ring = ring_new();
  int slot = comm_new(ring, 8), order[WR_COMM_WINDOW];
  uint64_t base = 0;
  for (uint64_t round = 0; round < 12; round++) { /* over several laps of the window, also in part */
    int n = round % 3 ? 100 + 77 * (int)round : WR_COMM_WINDOW;
    wr_op *ops = begin_many(ring, slot, WR_ALL_REDUCE, n);
    char done[WR_COMM_WINDOW] = {0};
    shuffle(order, n, round);
    int frontier = 0;
    for (int i = 0; i < n; i++) {
      wr_op_end(ring, &ops[order[i]], WR_DONE);
      done[order[i]] = 1;
      while (frontier < n && done[frontier]) frontier++;
      if (ring->comm[slot].done != base + (uint64_t)frontier) CHECK_EQUAL(ring->comm[slot].done, base + (uint64_t)frontier);
      if (ring->comm[slot].completed != base + (uint64_t)i + 1) CHECK_EQUAL(ring->comm[slot].completed, base + (uint64_t)i + 1);
    }
    base += (uint64_t)n;
    free(ops);
  }
}

/* More behind a gap than the window holds: `done` stands at the gap (true), and is right again once all are complete. */
TEST(op_completions_beyond_the_window_recover) {
  wr_ring *ring = ring_new();
  int slot = comm_new(ring, 8), n = 3 * WR_COMM_WINDOW + 17;
  for (int repeat = 0; repeat < 3; repeat++) {
    uint64_t base = ring->comm[slot].done;
    wr_op *ops = begin_many(ring, slot, WR_ALL_REDUCE, n);
    for (int i = n - 1; i > 0; i--) wr_op_end(ring, &ops[i], WR_DONE);
    CHECK_EQUAL(ring->comm[slot].done, base);
    wr_op_end(ring, &ops[0], WR_DONE);
    CHECK_EQUAL(ring->comm[slot].done, base + (uint64_t)n);
    free(ops);
    ops = begin_many(ring, slot, WR_ALL_REDUCE, 10); /* and the window works on */
    wr_op_end(ring, &ops[1], WR_DONE);
    CHECK_EQUAL(ring->comm[slot].done, base + (uint64_t)n);
    wr_op_end(ring, &ops[0], WR_DONE);
    CHECK_EQUAL(ring->comm[slot].done, base + (uint64_t)n + 2);
    for (int i = 2; i < 10; i++) wr_op_end(ring, &ops[i], WR_DONE);
    free(ops);
  }
}

TEST(op_counters_wrap_at_32_bits) {
  wr_ring *ring = ring_new();
  int slot = comm_new(ring, 8);
  wr_comm *c = &ring->comm[slot];
  c->issued = c->completed = c->done = UINT64_C(0xffffffff) / 2048 * 2048; /* bits all clear: an even lap */
  ring->header.ordinal = ring->frame.op_counter = UINT32_MAX - 3;
  uint64_t start = c->done;
  for (int round = 0; round < 8; round++) {
    wr_op *ops = begin_many(ring, slot, WR_ALL_REDUCE, 1000);
    CHECK_EQUAL(ring->frame.op_counter, ring->header.ordinal);
    for (int i = 999; i >= 0; i--) wr_op_end(ring, &ops[i], WR_DONE);
    free(ops);
  }
  CHECK_EQUAL(c->done, start + 8000);
  CHECK(c->done > UINT32_MAX);
}

/* ---- many threads ---------------------------------------------------------------------------------- */

enum { THREADS = 6, EACH = 4000, WINDOW = 40 };
static wr_ring *shared;
static int shared_slot, shared_kind;
static uint32_t watching, stop;

static void *work(void *seed_) {
  uint64_t seed = (uint64_t)(uintptr_t)seed_ * 1000;
  wr_op ops[WINDOW];
  int order[WINDOW];
  for (int i = 0; i < EACH; i += WINDOW) {
    for (int j = 0; j < WINDOW; j++) {
      ops[j] = op_new(shared_slot, shared_kind, shared_kind >= WR_SEND ? (int)(random_next(&seed) % 3) : -1);
      wr_op_begin(shared, &ops[j]);
      if (j % 3) wr_op_issued(shared, &ops[j]);
    }
    shuffle(order, WINDOW, seed);
    for (int j = 0; j < WINDOW; j++) {
      wr_op *op = &ops[order[j]];
      int row = wr_wait_begin(shared, op, WR_WAIT_CALL);
      if (j % 8 == 0) sched_yield();
      wr_wait_end(shared, op, row);
      wr_op_end(shared, op, WR_DONE);
    }
  }
  return NULL;
}

/* Everything that a reader may take from a row must belong to one operation. */
static void *watch(void *looked_) {
  uint64_t *looked = looked_, latest = 0;
  STORE(&watching, 1);
  while (!LOAD(&stop)) {
    uint64_t done = LOAD(&shared->comm[shared_slot].done);
    CHECK(done >= latest);
    latest = done;
    for (int i = 0; i < WR_INFLIGHT; i++) {
      wr_inflight row;
      if (!read_row(&shared->inflight[i], &row, sizeof row) || !row.state) continue;
      CHECK(row.kind == shared_kind && row.count == 7 && row.trace_id.counter && row.state <= 2);
      CHECK(!row.t_return_ns || row.t_return_ns >= row.t_issue_ns); /* not of the row's former operation */
      CHECK(!row.wait_since_ns || row.wait_since_ns >= row.t_issue_ns);
      ++*looked;
    }
    for (int i = 0; i < WR_WAITS; i++) {
      wr_wait w;
      if (!read_row(&shared->wait[i], &w, sizeof w) || !w.tid) continue;
      CHECK(w.kind == shared_kind && w.since_ns >= w.t_issue_ns && w.how == WR_WAIT_CALL);
    }
    sched_yield();
  }
  return NULL;
}

static void run_threads(int kind) {
  pthread_t thread[THREADS], watcher;
  uint64_t looked = 0;
  shared = ring_new();
  shared_slot = comm_new(shared, 8);
  shared_kind = kind;
  STORE(&stop, 0);
  STORE(&watching, 0);
  pthread_create(&watcher, NULL, watch, &looked);
  while (!LOAD(&watching)) sched_yield(); /* on a busy machine the others would be through before it begins */
  for (uintptr_t i = 0; i < THREADS; i++) pthread_create(&thread[i], NULL, work, (void *)(i + 1));
  for (int i = 0; i < THREADS; i++) pthread_join(thread[i], NULL);
  STORE(&stop, 1);
  pthread_join(watcher, NULL);
  CHECK(looked > 0);
  CHECK(shared->inflight_used == 0 && shared->waits_used == 0);
  CHECK_EQUAL(shared->header.ordinal, THREADS * EACH);
  CHECK_EQUAL(shared->header.head, THREADS * EACH);
  CHECK_EQUAL(shared->frame.op_counter, THREADS * EACH);
}

TEST(op_threads_collectives_are_counted_exactly) {
  run_threads(WR_ALL_REDUCE);
  const wr_comm *c = &shared->comm[shared_slot];
  CHECK_EQUAL(c->issued, THREADS * EACH);
  CHECK_EQUAL(c->completed, THREADS * EACH);
  CHECK_EQUAL(c->done, THREADS * EACH);
}

TEST(op_threads_pairs_are_counted_exactly_and_made_once) {
  run_threads(WR_SEND);
  uint64_t issued = 0;
  int rows = 0;
  for (int i = 0; i < WR_PAIRS; i++) {
    const wr_pair *p = &shared->pair[i];
    if (!p->key) continue;
    rows++;
    issued += p->issued;
    CHECK(p->kind == WR_SEND && p->peer >= 0 && p->peer < 3 && p->comm_slot == shared_slot);
    CHECK_EQUAL(p->completed, p->issued);
    CHECK_EQUAL(p->done, p->issued);
  }
  CHECK_EQUAL(rows, 3);
  CHECK_EQUAL(issued, THREADS * EACH);
}

/* One thread issues, polls and flags; another ends the operation meanwhile, as a completion hook does; a third takes
 * the released row at once. What comes late must not touch it. */
static wr_op *handed;

static void *end_them(void *unused) {
  (void)unused;
  while (!LOAD(&stop)) {
    wr_op *op = __atomic_exchange_n(&handed, NULL, __ATOMIC_ACQ_REL);
    if (op) wr_op_end(shared, op, WR_DONE);
    else sched_yield();
  }
  return NULL;
}

static void *take_rows(void *unused) {
  (void)unused;
  while (!LOAD(&stop)) {
    wr_op op = op_new(shared_slot, WR_BARRIER, -1);
    wr_op_begin(shared, &op);
    if (op.row >= 0) {
      const wr_inflight *row = &shared->inflight[op.row];
      for (int look = 0; look < 20; look++) {
        CHECK(LOAD(&row->state) == 1 && !LOAD(&row->flags) && !LOAD(&row->polled_ns));
        CHECK(!LOAD(&row->t_return_ns) && !LOAD(&row->wait_since_ns) && !LOAD(&row->wait_tid));
      }
    }
    wr_op_end(shared, &op, WR_DONE);
  }
  return NULL;
}

TEST(op_late_calls_do_not_touch_a_row_given_away) {
  pthread_t ender, taker;
  shared = ring_new();
  shared_slot = comm_new(shared, 8);
  STORE(&stop, 0);
  handed = NULL;
  pthread_create(&ender, NULL, end_them, NULL);
  pthread_create(&taker, NULL, take_rows, NULL);
  for (int i = 0; i < 3000; i++) {
    wr_op op = op_new(shared_slot, WR_ALL_REDUCE, -1);
    wr_op_begin(shared, &op);
    STORE_RELEASE(&handed, &op);
    do {
      wr_op_issued(shared, &op);
      wr_op_polled(shared, &op);
      wr_op_flag(shared, &op, WR_FLAG_FUTURE_TAKEN);
      int row = wr_wait_begin(shared, &op, WR_WAIT_CALL);
      wr_wait_end(shared, &op, row);
      if (i % 16 == 0) sched_yield();
    } while (!LOAD_ACQUIRE(&op.ended));
    while (LOAD_ACQUIRE(&op.holders) != UINT32_C(1) << 31) sched_yield(); /* it lives on this stack */
  }
  STORE(&stop, 1);
  pthread_join(ender, NULL);
  pthread_join(taker, NULL);
  CHECK_EQUAL(shared->inflight_used, 0);
  CHECK_EQUAL(shared->comm[shared_slot].done, shared->comm[shared_slot].issued);
}

/* ---- waits ----------------------------------------------------------------------------------------- */

TEST(wait_row_says_who_waits_for_what) {
  wr_ring *ring = ring_new();
  wr_op op = op_new(comm_new(ring, 8), WR_RECV, 2);
  op.tag = 9;
  wr_op_begin(ring, &op);
  int row = wr_wait_begin(ring, &op, WR_WAIT_CALL);
  wr_wait w;
  REQUIRE(row >= 0 && read_row(&ring->wait[row], &w, sizeof w));
  CHECK(w.tid == (uint32_t)gettid() && w.comm_id == op.comm_id && w.counter == 1 && w.peer == 2 && w.tag == 9);
  CHECK(w.how == WR_WAIT_CALL && w.inflight == op.row && ring->inflight[op.row].wait_tid == w.tid);
  usleep(3000);
  wr_wait_end(ring, &op, row);
  CHECK(!ring->wait[row].tid && !ring->waits_used && !ring->inflight[op.row].wait_since_ns);
  wr_op_end(ring, &op, WR_DONE);
  CHECK(ring->record[0].wait_us >= 3000 && ring->record[0].wait_us < 3000000);
  CHECK_EQUAL(wr_wait_begin(ring, &op, WR_WAIT_CALL), -1); /* it has ended: nobody waits */
}

TEST(wait_outlives_the_end_of_its_operation) {
  wr_ring *ring = ring_new();
  wr_op op = op_new(comm_new(ring, 8), WR_ALL_REDUCE, -1);
  wr_op_begin(ring, &op);
  int row = wr_wait_begin(ring, &op, WR_WAIT_CALL);
  usleep(2000);
  wr_op_end(ring, &op, WR_DONE);
  CHECK(ring->record[0].wait_us >= 2000);
  wr_op next = op_new(0, WR_BARRIER, -1);
  wr_op_begin(ring, &next); /* takes the row */
  CHECK_EQUAL(next.row, op.row);
  STORE(&ring->inflight[next.row].wait_since_ns, 5);
  wr_wait_end(ring, &op, row);
  CHECK(ring->inflight[next.row].wait_since_ns == 5 && !ring->waits_used);
}

TEST(wait_table_full_is_counted) {
  wr_ring *ring = ring_new();
  wr_op op = op_new(comm_new(ring, 8), WR_ALL_REDUCE, -1);
  wr_op_begin(ring, &op);
  int rows[WR_WAITS];
  for (int i = 0; i < WR_WAITS; i++) {
    rows[i] = wr_wait_begin(ring, &op, WR_WAIT_CALL);
    CHECK_EQUAL(rows[i], i);
  }
  CHECK_EQUAL(wr_wait_begin(ring, &op, WR_WAIT_CALL), -1);
  CHECK_EQUAL(ring->header.dropped_waits, 1);
  CHECK(ring->waits_used == UINT32_MAX);
  wr_wait_end(ring, &op, rows[31]);
  CHECK(ring->waits_used == UINT32_MAX >> 1);
  CHECK_EQUAL(wr_wait_begin(ring, &op, WR_WAIT_CALL), 31);
}

TEST(remote_call_marks_who_waits_for_whom) {
  wr_ring *ring = ring_new();
  int row = wr_remote_wait_begin(ring, 5), other = wr_remote_wait_begin(ring, -1);
  wr_wait w;
  REQUIRE(row >= 0 && other >= 0 && read_row(&ring->wait[row], &w, sizeof w));
  CHECK(w.kind == WR_REMOTE_CALL && w.peer == 5 && w.tid == (uint32_t)gettid() && w.since_ns && !w.comm_id);
  CHECK(w.comm_slot == UINT16_MAX && w.inflight == 255 && ring->wait[other].peer == -1);
  wr_outside_wait_end(ring, row);
  CHECK(!ring->wait[row].tid && ring->wait[other].tid);
  wr_outside_wait_end(ring, other);
  wr_outside_wait_end(ring, -1); /* there was no row for it */
  wr_outside_wait_end(ring, WR_WAITS);
  CHECK(!ring->waits_used && !ring->header.ordinal);
}

TEST(meeting_marks_who_makes_a_communicator_with_whom) {
  wr_ring *ring = ring_new();
  int row = wr_meeting_begin(ring, 3, 4, 2);
  wr_wait w;
  REQUIRE(row >= 0 && read_row(&ring->wait[row], &w, sizeof w));
  CHECK(w.kind == WR_MEETING && w.peer == 3 && w.tag == 4 && w.count == 2 && w.since_ns && !w.comm_id);
  CHECK(w.tid == (uint32_t)gettid() && w.comm_slot == UINT16_MAX && w.inflight == 255);
  wr_outside_wait_end(ring, row);
  CHECK(!ring->waits_used && !ring->header.ordinal);
}

/* ---- pairs ----------------------------------------------------------------------------------------- */

TEST(pair_counts_per_source_destination_and_tag) {
  wr_ring *ring = ring_new();
  int slot = comm_new(ring, 8);
  const struct { int kind, peer; uint32_t tag, counter; } calls[] = {
      {WR_SEND, 1, 0, 1}, {WR_SEND, 1, 0, 2}, {WR_SEND, 2, 0, 1}, {WR_RECV, 1, 0, 1}, {WR_SEND, 1, 7, 1}, {WR_SEND, 1, 0, 3},
      {WR_RECV_ANY, -1, 0, 1}, {WR_RECV_ANY, -1, 0, 2}};
  for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
    wr_op op = op_new(slot, calls[i].kind, calls[i].peer);
    op.tag = calls[i].tag;
    wr_op_begin(ring, &op);
    CHECK_EQUAL(op.counter, calls[i].counter);
    wr_op_end(ring, &op, WR_DONE);
  }
  CHECK_EQUAL(ring->comm[slot].issued, 0); /* they are no collectives */
}

/* Both ends give one trace ID to one message. */
TEST(pair_trace_id_is_equal_at_both_ends) {
  wr_ring *ring = ring_new();
  wr_forget_communicators(); /* earlier tests made this one, too: it would be of a later generation here */
  int here = comm_new(ring, 8); /* group rank 3 */
  int32_t members[8] = {0, 1, 2, 3, 4, 5, 6, 7};
  wr_op sent = op_new(here, WR_SEND, 6), other_tag = sent;
  other_tag.tag = 1;
  wr_op_begin(ring, &sent);
  wr_op_begin(ring, &other_tag);
  pid_t pid = fork();
  if (!pid) {
    wr_ring *peer = ring_new();
    int there = wr_comm_open(peer, "world", "default", "gloo", 8, 6, members, 1000);
    wr_op received = op_new(there, WR_RECV, 3), back = op_new(there, WR_SEND, 3);
    wr_op_begin(peer, &received);
    wr_op_begin(peer, &back);
    _exit(!(received.comm_id == sent.comm_id && received.counter == sent.counter && back.comm_id != sent.comm_id &&
            sent.comm_id != other_tag.comm_id));
  }
  CHECK_EQUAL(exit_of(pid), 0);
}

TEST(pair_reverse_order_beyond_the_window_recovers) {
  wr_ring *ring = ring_new();
  int slot = comm_new(ring, 8), n = WR_PAIR_WINDOW * 3;
  wr_op *ops = begin_many(ring, slot, WR_RECV, n);
  const wr_pair *p = &ring->pair[ops[0].pair];
  for (int i = n - 1; i > 0; i--) wr_op_end(ring, &ops[i], WR_DONE);
  CHECK_EQUAL(p->done, 0);
  wr_op_end(ring, &ops[0], WR_DONE);
  CHECK_EQUAL(p->done, n);
  free(ops);
}

TEST(pair_table_full_is_counted) {
  wr_ring *ring = ring_new();
  int slot = comm_new(ring, 8), without = 0;
  for (uint32_t tag = 0; tag < WR_PAIRS + 40; tag++) {
    wr_op op = op_new(slot, WR_SEND, 1);
    op.tag = tag;
    wr_op_begin(ring, &op);
    without += op.pair < 0;
    wr_op_end(ring, &op, WR_DONE);
  }
  CHECK(without >= 40);
  CHECK_EQUAL(ring->header.dropped_pairs, without);
  CHECK_EQUAL(ring->header.head, WR_PAIRS + 40);
}

TEST(backward_passes_are_records_of_their_begin_and_end) {
  wr_ring *ring = ring_new();
  wr_record begins, ends;
  wr_backward(ring, 1000, 0);
  wr_backward(ring, 1000, 2500);
  REQUIRE(read_record(ring, 0, &begins) == 1);
  REQUIRE(read_record(ring, 1, &ends) == 1);
  CHECK(begins.kind == WR_PASS && begins.t_issue_ns == 1000 && !begins.t_end_ns);
  CHECK(ends.kind == WR_PASS && ends.t_issue_ns == 1000 && ends.t_end_ns == 2500);
  CHECK(ends.comm_slot == UINT16_MAX && ends.peer == -1 && ends.status == WR_DONE);
}

TEST(optimizer_steps_are_records_and_count_once_between_operations) {
  wr_ring *ring = ring_new();
  int slot = comm_new(ring, 8);
  wr_record first, second, last;
  wr_op op = op_new(slot, WR_ALL_REDUCE, -1);
  wr_op_begin(ring, &op);
  wr_op_end(ring, &op, WR_DONE);
  CHECK(!ring->step_tid);
  wr_step(ring);
  wr_step(ring); /* another optimizer, for another part of the model */
  CHECK_EQUAL(ring->step_tid, (uint32_t)gettid());
  CHECK(ring->header.head == 2);
  REQUIRE(read_record(ring, 1, &first) == 1);
  CHECK(first.kind == WR_STEP && first.ordinal == 1 && first.t_issue_ns > 0 && first.t_end_ns == first.t_issue_ns);
  CHECK(first.comm_slot == UINT16_MAX && first.peer == -1 && first.status == WR_DONE);
  for (int i = 0; i < 2; i++) {
    op = op_new(slot, WR_ALL_REDUCE, -1);
    wr_op_begin(ring, &op);
    wr_op_end(ring, &op, WR_DONE);
    wr_step(ring);
  }
  REQUIRE(read_record(ring, 3, &second) == 1);
  REQUIRE(read_record(ring, 5, &last) == 1);
  CHECK(second.counter == first.counter + 1 && last.counter == first.counter + 2 && last.ordinal == 3);
}
