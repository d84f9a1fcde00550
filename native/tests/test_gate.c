/* The gate: who is kept back, until when, and what a process makes meanwhile. */
#define _GNU_SOURCE 1
#include <pthread.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "atomics.h"
#include "check.h"

enum { MS = 1000 };

static void shut(wr_ring *ring, uint32_t pause, uint32_t step, uint64_t ordinal, uint32_t longest_ms) {
  STORE(&ring->gate.at_step, step);
  STORE(&ring->gate.at_ordinal, ordinal);
  STORE(&ring->gate.longest_ms, longest_ms);
  STORE_RELEASE(&ring->gate.pause, pause);
  STORE_RELEASE(&ring->gate_closed, 1u);
}

static void op_done(wr_ring *ring, int slot) {
  wr_op op = op_new(slot, WR_ALL_REDUCE, -1);
  wr_op_begin(ring, &op);
  wr_op_end(ring, &op, WR_DONE);
}

static void *pass(void *of) {
  prctl(PR_SET_NAME, "pt_autograd_0"); /* one of those that train */
  wr_gate_pass(of);
  return NULL;
}

static void *pass_beside(void *ring) {
  wr_gate_pass(ring);
  return NULL;
}

static void *pass_as_stepping(void *of) {
  wr_ring *ring = of;
  STORE(&ring->step_tid, (uint32_t)gettid());
  wr_gate_pass(ring);
  return NULL;
}

/* A thread that passes, once it waits. */
static pthread_t one_waits(wr_ring *ring, uint32_t pause) {
  pthread_t thread;
  pthread_create(&thread, NULL, pass, ring);
  while (LOAD_ACQUIRE(&ring->gate.arrived) != pause) {
    STORE(&ring->gate.renewals, ring->gate.renewals + 1);
    usleep(MS);
  }
  return thread;
}

TEST(gate_that_is_open_keeps_nobody) {
  wr_ring *ring = ring_new();
  wr_gate_pass(ring);
  CHECK(ring->gate.arrived == 0 && ring->gate.opened == 0);
}

TEST(gate_keeps_nobody_who_has_not_come_so_far) {
  wr_ring *ring = ring_new();
  int slot = comm_new(ring, 8);
  shut(ring, 1, 0, 2, 1000);
  op_done(ring, slot);
  wr_gate_pass(ring); /* one operation is left */
  CHECK_EQUAL(ring->gate.arrived, 0);
  shut(ring, 2, ring->gate.steps + 1, 0, 1000);
  wr_gate_pass(ring); /* one step is left */
  CHECK_EQUAL(ring->gate.arrived, 0);
  shut(ring, 3, 0, 0, 1000);
  wr_gate_pass(ring); /* nothing is told */
  CHECK_EQUAL(ring->gate.arrived, 0);
}

TEST(gate_opens_when_told) {
  wr_ring *ring = ring_new();
  op_done(ring, comm_new(ring, 8));
  shut(ring, 5, 0, 1, 30000);
  pthread_t thread = one_waits(ring, 5);
  CHECK(LOAD(&ring->gate.arrived_ordinal) == 1 && LOAD(&ring->gate.arrived_ns) > 0);
  STORE(&ring->gate_closed, 0u);
  pthread_join(thread, NULL);
  CHECK(ring->gate.opened == 5 && ring->gate.opened_by == WR_OPENED_TOLD);
  CHECK(ring->gate.opened_ns > ring->gate.arrived_ns);
}

TEST(gate_neither_keeps_nor_counts_a_thread_that_does_not_train) {
  wr_ring *ring = ring_new();
  op_done(ring, comm_new(ring, 8));
  shut(ring, 5, 0, 1, 30000);
  pthread_t beside, trains;
  pthread_create(&beside, NULL, pass_beside, ring);
  pthread_join(beside, NULL);
  CHECK_EQUAL(LOAD(&ring->gate.arrived), 0);
  pthread_create(&trains, NULL, pass_as_stepping, ring); /* not the main thread, but the one that makes steps */
  while (LOAD_ACQUIRE(&ring->gate.arrived) != 5) usleep(MS);
  STORE(&ring->gate_closed, 0u);
  pthread_join(trains, NULL);
  CHECK_EQUAL(LOAD(&ring->gate.opened), 5);
}

TEST(gate_opens_for_another_pause) {
  wr_ring *ring = ring_new();
  op_done(ring, comm_new(ring, 8));
  shut(ring, 5, 0, 1, 30000);
  pthread_t thread = one_waits(ring, 5);
  shut(ring, 6, 0, 100, 30000);
  pthread_join(thread, NULL);
  CHECK(ring->gate.opened == 5 && ring->gate.opened_by == WR_OPENED_TOLD);
}

TEST(gate_counts_optimizer_steps) {
  wr_ring *ring = ring_new();
  int slot = comm_new(ring, 8);
  op_done(ring, slot);
  wr_step(ring);
  shut(ring, 1, ring->gate.steps + 1, 0, 30000);
  op_done(ring, slot);
  wr_gate_pass(ring);
  CHECK_EQUAL(ring->gate.arrived, 0);
  wr_step(ring);
  pthread_t thread = one_waits(ring, 1);
  STORE(&ring->gate_closed, 0u);
  pthread_join(thread, NULL);
  CHECK_EQUAL(ring->gate.arrived_ordinal, 2);
}

TEST(gate_that_nobody_renews_opens_once) {
  wr_ring *ring = ring_new();
  op_done(ring, comm_new(ring, 8));
  shut(ring, 1, 0, 1, 30000);
  wr_gate_pass(ring);
  CHECK(ring->gate.opened == 1 && ring->gate.opened_by == WR_OPENED_NOT_RENEWED);
  uint64_t opened = ring->gate.opened_ns;
  wr_gate_pass(ring); /* still closed, but that pause is over for this process */
  CHECK(ring->gate.opened_ns == opened);
}

static uint32_t renewing;

static void *renew(void *ring) {
  while (LOAD_ACQUIRE(&renewing)) {
    ADD(&((wr_ring *)ring)->gate.renewals, 1);
    usleep(10 * MS);
  }
  return NULL;
}

TEST(gate_is_never_closed_for_longer_than_told) {
  wr_ring *ring = ring_new();
  op_done(ring, comm_new(ring, 8));
  shut(ring, 1, 0, 1, 900); /* longer than it may go without renewal */
  pthread_t renewer;
  STORE(&renewing, 1u);
  pthread_create(&renewer, NULL, renew, ring);
  wr_gate_pass(ring);
  STORE_RELEASE(&renewing, 0u);
  pthread_join(renewer, NULL);
  CHECK(ring->gate.opened == 1 && ring->gate.opened_by == WR_OPENED_TOO_LONG);
}

static wr_ring *tested_ring;
static uint32_t tests_made;

static void test_it(wr_gate *gate) {
  ADD(&tests_made, 1);
  wr_gate_pass(tested_ring); /* an operation of its own is not kept back */
  gate->results = 1;
  gate->result_s[0] = 0.5f;
}

TEST(gate_has_a_test_made_once) {
  wr_ring *ring = tested_ring = ring_new();
  op_done(ring, comm_new(ring, 8));
  wr_gate_set_tester(test_it);
  STORE(&tests_made, 0u);
  shut(ring, 1, 0, 1, 30000);
  pthread_t thread = one_waits(ring, 1), other;
  pthread_create(&other, NULL, pass, ring);
  STORE_RELEASE(&ring->gate.test, 7u);
  while (LOAD_ACQUIRE(&ring->gate.tested) != 7) {
    ADD(&ring->gate.renewals, 1);
    usleep(MS);
  }
  CHECK(ring->gate.results == 1 && ring->gate.result_s[0] == 0.5f);
  for (int i = 0; i < 10; i++) {
    ADD(&ring->gate.renewals, 1);
    usleep(MS);
  }
  STORE(&ring->gate_closed, 0u);
  pthread_join(thread, NULL);
  pthread_join(other, NULL);
  wr_gate_set_tester(NULL);
  CHECK_EQUAL(LOAD(&tests_made), 1);
}

static pthread_t answered_by, asked_by;
static int asked, answer;

static int question(void) {
  answered_by = pthread_self();
  return 42;
}

static void ask(wr_gate *gate) {
  (void)gate;
  asked_by = pthread_self();
  asked = !wr_gate_is_opening(tested_ring);
  answer = wr_gate_ask(question);
}

TEST(gate_has_the_thread_that_trains_answer) {
  wr_ring *ring = tested_ring = ring_new();
  op_done(ring, comm_new(ring, 8));
  CHECK_EQUAL(wr_gate_ask(question), -1); /* this thread makes no test */
  wr_gate_set_tester(ask);
  shut(ring, 1, 0, 1, 30000);
  pthread_t thread = one_waits(ring, 1);
  STORE_RELEASE(&ring->gate.test, 3u);
  while (LOAD_ACQUIRE(&ring->gate.tested) != 3) {
    ADD(&ring->gate.renewals, 1);
    usleep(MS);
  }
  STORE(&ring->gate_closed, 0u);
  pthread_join(thread, NULL);
  wr_gate_set_tester(NULL);
  CHECK(asked && answer == 42);
  CHECK(pthread_equal(answered_by, thread) && !pthread_equal(asked_by, thread));
}

static uint32_t is_stuck;

static void get_stuck(wr_gate *gate) {
  while (LOAD_ACQUIRE(&is_stuck)) usleep(MS);
  gate->results = wr_gate_is_opening(tested_ring) ? 1 : 0;
}

TEST(gate_lets_go_though_a_test_hangs) {
  wr_ring *ring = tested_ring = ring_new();
  op_done(ring, comm_new(ring, 8));
  wr_gate_set_tester(get_stuck);
  STORE_RELEASE(&is_stuck, 1u);
  shut(ring, 1, 0, 1, 30000);
  pthread_t thread = one_waits(ring, 1);
  STORE_RELEASE(&ring->gate.test, 9u);
  for (int i = 0; i < 20; i++) {
    ADD(&ring->gate.renewals, 1);
    usleep(MS);
  }
  STORE(&ring->gate_closed, 0u);
  pthread_join(thread, NULL); /* training goes on */
  CHECK(LOAD(&ring->gate.opened) == 1 && LOAD(&ring->gate.tested) == 0);
  STORE_RELEASE(&is_stuck, 0u);
  while (LOAD_ACQUIRE(&ring->gate.tested) != 9) usleep(MS);
  CHECK_EQUAL(ring->gate.results, 1); /* it has been told that the gate opens */
  wr_gate_set_tester(NULL);
}

TEST(gate_keeps_all_threads_and_lets_all_go) {
  enum { THREADS = 8, PAUSES = 200 };
  wr_ring *ring = ring_new();
  op_done(ring, comm_new(ring, 8));
  for (uint32_t pause = 1; pause <= PAUSES; pause++) {
    pthread_t thread[THREADS];
    shut(ring, pause, 0, 1, 30000);
    thread[0] = one_waits(ring, pause);
    for (int i = 1; i < THREADS; i++) pthread_create(&thread[i], NULL, pass, ring);
    STORE_RELEASE(&ring->gate_closed, 0u);
    for (int i = 0; i < THREADS; i++) pthread_join(thread[i], NULL);
    CHECK(ring->gate.opened == pause && ring->gate.opened_by == WR_OPENED_TOLD);
  }
}
