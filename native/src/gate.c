/* The gate: keeps a process from its next operation for a while, all ranks of a job at the same point.
 *
 * While it is open an operation reads one word. While it is closed the process may wait here, so this file is no part of
 * the hot path. What is told is read afresh each time: the agent writes it from outside, and may be dead the next moment.
 */
#define _GNU_SOURCE 1
#include <time.h>

#include "atomics.h"
#include "whichrank/ring.h"

enum { LOOK_NS = 1000 * 1000 };                   /* between two looks at what is told */
static const uint64_t RENEWED_NS = 600 * 1000 * 1000; /* a gate that is not renewed for so long opens */
static const uint64_t LONGEST_MS = 10 * 1000;     /* whatever is told */

static void (*tester)(wr_gate *);

void wr_gate_set_tester(void (*test)(wr_gate *)) { __atomic_store_n(&tester, test, __ATOMIC_RELEASE); }

int wr_gate_is_closed(const wr_ring *ring) { return LOAD(&ring->gate_closed) != 0; }

static int has_come_so_far(const wr_ring *ring) {
  const wr_gate *g = &ring->gate;
  uint64_t at_ordinal = LOAD(&g->at_ordinal);
  uint32_t at_step = LOAD(&g->at_step);
  if (at_step) return LOAD(&g->steps) >= at_step;
  return at_ordinal && LOAD(&ring->header.ordinal) >= at_ordinal;
}

static int is_still_closed(const wr_ring *ring, uint32_t pause) {
  return LOAD_ACQUIRE(&ring->gate_closed) && LOAD(&ring->gate.pause) == pause && LOAD(&ring->gate.opened) != pause;
}

static void make_test(wr_gate *g) {
  uint32_t number = LOAD_ACQUIRE(&g->test);
  void (*test)(wr_gate *) = __atomic_load_n(&tester, __ATOMIC_ACQUIRE);
  if (!test || !number || number == LOAD(&g->tested)) return;
  test(g);
  STORE_RELEASE(&g->tested, number);
}

/* What a thread that waits has seen. */
typedef struct {
  uint32_t pause, renewals;
  uint64_t began, renewed, longest_ns;
} waiting;

static __thread waiting *here; /* set while this thread waits, and makes a test */

/* Why it opens now; WR_OPENED_NOT: it does not. */
static uint32_t opens(const wr_ring *ring, waiting *w) {
  if (!is_still_closed(ring, w->pause)) return WR_OPENED_TOLD;
  uint64_t now = wr_now_ns();
  uint32_t latest = LOAD(&ring->gate.renewals);
  if (latest != w->renewals) w->renewed = now;
  w->renewals = latest;
  if (now - w->renewed >= RENEWED_NS) return WR_OPENED_NOT_RENEWED;
  return now - w->began >= w->longest_ns ? WR_OPENED_TOO_LONG : WR_OPENED_NOT;
}

int wr_gate_is_opening(const wr_ring *ring) { return here && opens(ring, here) != WR_OPENED_NOT; }

/* Why it opens; the thread that has come first makes what tests are told. */
static uint32_t wait_until_open(wr_ring *ring, uint32_t pause, int is_first) {
  uint64_t now = wr_now_ns(), longest_ms = LOAD(&ring->gate.longest_ms);
  if (longest_ms > LONGEST_MS) longest_ms = LONGEST_MS;
  waiting w = {pause, LOAD(&ring->gate.renewals), now, now, longest_ms * 1000 * 1000};
  uint32_t why;
  here = &w;
  while ((why = opens(ring, &w)) == WR_OPENED_NOT) {
    if (is_first) make_test(&ring->gate);
    struct timespec look = {0, LOOK_NS};
    nanosleep(&look, NULL);
  }
  here = NULL;
  return why;
}

static void note_opened(wr_ring *ring, uint32_t why) {
  wr_gate *g = &ring->gate;
  STORE(&g->opened_ns, wr_now_ns());
  STORE(&g->opened_by, why);
  STORE_RELEASE(&g->opened, LOAD(&g->arrived));
}

void wr_gate_pass(wr_ring *ring) {
  static __thread int is_inside; /* a test may call operations itself */
  wr_gate *g = &ring->gate;
  uint32_t pause = LOAD_ACQUIRE(&g->pause);
  if (is_inside || !pause || LOAD(&g->opened) == pause || !has_come_so_far(ring)) return;
  uint32_t before = LOAD(&g->claimed);
  int is_first = before != pause && wr_cas32(&g->claimed, &before, pause);
  if (is_first) {
    STORE(&g->arrived_ns, wr_now_ns());
    STORE(&g->arrived_ordinal, LOAD(&ring->header.ordinal));
    STORE_RELEASE(&g->arrived, pause);
  }
  is_inside = 1;
  uint32_t why = wait_until_open(ring, pause, is_first);
  is_inside = 0;
  if (is_first) note_opened(ring, why);
}
