/* The gate: keeps a process from its next operation for a while, all ranks of a job at the same point.
 *
 * While it is open an operation reads one word. While it is closed the process may wait here, so this file is no part of
 * the hot path. What is told is read afresh each time: the agent writes it from outside, and may be dead the next moment.
 *
 * A test is made by a thread of its own. The thread that trains waits meanwhile, without Python's lock. Python runs
 * handlers of signals in the main thread only: a handler of the program waits until training goes on, is called once, and
 * the program gets what it raises. And training goes on when it is told to, even if a test still waits for another rank.
 */
#define _GNU_SOURCE 1
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#include "atomics.h"
#include "whichrank/ring.h"

enum { LOOK_NS = 1000 * 1000 };                   /* between two looks at what is told */
static const uint64_t RENEWED_NS = 600 * 1000 * 1000; /* a gate that is not renewed for so long opens */
static const uint64_t LONGEST_MS = 10 * 1000;     /* whatever is told */

static const int LINGER_LOOKS = 200;              /* at a test that still ends itself, before training goes on */
static const char OF_AUTOGRAD[] = "pt_autograd";  /* how torch calls the threads that run backward */

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

/* Whether this thread trains: it makes optimizer steps, or is the main one, or one of those that run backward for it.
 * Another one, with a process group of its own, says nothing of how far training has come, and is not kept back. */
static int trains(const wr_ring *ring) {
  pid_t self = gettid();
  if (self == getpid() || (uint32_t)self == LOAD(&ring->step_tid)) return 1;
  char name[16] = "";
  prctl(PR_GET_NAME, name);
  return strncmp(name, OF_AUTOGRAD, sizeof OF_AUTOGRAD - 1) == 0;
}

/* ---- tests ---------------------------------------------------------------------------------------------------------- */

/* The test under way; there is one at most. */
static struct {
  wr_ring *ring;
  uint32_t pause, number;
  uint32_t is_made;       /* its thread has not ended */
  uint32_t left;          /* the pause that the thread that trains has left last */
  int (*question)(void);  /* for the thread that trains, which sets it to NULL when it has answered */
  int answer;
} test;

static __thread const wr_ring *tested; /* set in the thread that makes a test */

int wr_gate_is_opening(const wr_ring *ring) {
  return tested == ring && ring && (LOAD(&test.left) == test.pause || !is_still_closed(ring, test.pause));
}

static void look_again(void) {
  struct timespec look = {0, LOOK_NS};
  nanosleep(&look, NULL);
}

int wr_gate_ask(int (*question)(void)) {
  if (!tested) return -1;
  __atomic_store_n(&test.question, question, __ATOMIC_RELEASE);
  while (__atomic_load_n(&test.question, __ATOMIC_ACQUIRE)) {
    if (wr_gate_is_opening(tested)) return -1;
    look_again();
  }
  return LOAD(&test.answer);
}

static void answer(void) {
  int (*question)(void) = __atomic_load_n(&test.question, __ATOMIC_ACQUIRE);
  if (!question) return;
  STORE(&test.answer, question());
  __atomic_store_n(&test.question, NULL, __ATOMIC_RELEASE);
}

static void *make_test(void *of) {
  prctl(PR_SET_NAME, "whichrank_test"); /* it was that of the thread that trains */
  tested = test.ring;
  ((void (*)(wr_gate *))of)(&test.ring->gate);
  STORE_RELEASE(&test.ring->gate.tested, test.number);
  STORE_RELEASE(&test.is_made, 0u);
  return NULL;
}

/* Begin the test that is asked for, if it is a new one, and none is under way. */
static void begin_test(wr_ring *ring, uint32_t pause) {
  wr_gate *g = &ring->gate;
  uint32_t number = LOAD_ACQUIRE(&g->test);
  void (*of)(wr_gate *) = __atomic_load_n(&tester, __ATOMIC_ACQUIRE);
  if (!of || !number || LOAD_ACQUIRE(&test.is_made) || number == LOAD_ACQUIRE(&g->tested)) return;
  test.ring = ring;
  test.pause = pause;
  test.number = number;
  STORE(&test.left, 0u);
  __atomic_store_n(&test.question, NULL, __ATOMIC_RELAXED);
  STORE(&test.is_made, 1u);
  sigset_t all, before; /* signals are for the program's own threads */
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  pthread_t thread;
  int failed = pthread_create(&thread, NULL, make_test, (void *)of);
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  if (!failed) {
    pthread_detach(thread);
    return;
  }
  STORE(&test.is_made, 0u);
  g->results = 0;
  strcpy(g->problem, "no thread can be started");
  STORE_RELEASE(&g->tested, number);
}

/* ---- waiting -------------------------------------------------------------------------------------------------------- */

/* What a thread that waits has seen. */
typedef struct {
  uint32_t pause, renewals;
  uint64_t began, renewed, longest_ns;
} waiting;

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

/* Why it opens; the thread that has come first has tests made. */
static uint32_t wait_until_open(wr_ring *ring, uint32_t pause, int is_first) {
  uint64_t now = wr_now_ns(), longest_ms = LOAD(&ring->gate.longest_ms);
  if (longest_ms > LONGEST_MS) longest_ms = LONGEST_MS;
  waiting w = {pause, LOAD(&ring->gate.renewals), now, now, longest_ms * 1000 * 1000};
  uint32_t why;
  while ((why = opens(ring, &w)) == WR_OPENED_NOT) {
    if (is_first) {
      begin_test(ring, pause);
      answer();
    }
    look_again();
  }
  if (!is_first) return why;
  STORE(&test.left, pause);
  for (int look = 0; look < LINGER_LOOKS && LOAD_ACQUIRE(&test.is_made); look++) look_again();
  return why;
}

static void note_opened(wr_ring *ring, uint32_t why) {
  wr_gate *g = &ring->gate;
  STORE(&g->opened_ns, wr_now_ns());
  STORE(&g->opened_by, why);
  STORE_RELEASE(&g->opened, LOAD(&g->arrived));
}

void wr_gate_pass(wr_ring *ring) {
  wr_gate *g = &ring->gate;
  uint32_t pause = LOAD_ACQUIRE(&g->pause);
  if (!pause || LOAD(&g->opened) == pause || !has_come_so_far(ring) || !trains(ring)) return;
  uint32_t before = LOAD(&g->claimed);
  int is_first = before != pause && wr_cas32(&g->claimed, &before, pause);
  if (is_first) {
    STORE(&g->arrived_ns, wr_now_ns());
    STORE(&g->arrived_ordinal, LOAD(&ring->header.ordinal));
    STORE_RELEASE(&g->arrived, pause);
  }
  uint32_t why = wait_until_open(ring, pause, is_first);
  if (is_first) note_opened(ring, why);
}
