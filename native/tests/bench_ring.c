/* What the hot path costs: whichrank_tests --bench prints JSON, ns per call as the median of `n` runs with their spread.
 * Not run as a test: the figures belong to the machine. */
#define _GNU_SOURCE 1
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "atomics.h"
#include "check.h"
#include "whichrank/sampler.h"
#include "whichrank/transport.h"

enum { RUNS = 41, CALLS = 20000 };

static wr_ring *ring;
static int slot, ring_fd;
static volatile uint64_t sink;

static void empty(void) { __asm__ volatile("" ::: "memory"); }
static void clock_read(void) { sink = wr_now_ns(); }

static void push(void) {
  wr_record r = {.t_issue_ns = 1, .count = 2};
  wr_push(ring, &r);
}

static void trace(void) {
  static uint32_t counter;
  wr_trace_id id = wr_trace(ring, slot, ++counter);
  sink = id.comm_id ^ id.counter;
}

static void one_op(int kind, int32_t peer) {
  wr_op op = {.comm_slot = (uint16_t)slot, .kind = (uint8_t)kind, .peer = peer};
  wr_op_begin(ring, &op);
  wr_op_end(ring, &op, WR_DONE);
}

static void collective(void) { one_op(WR_ALL_REDUCE, -1); }
static void send_to_peer(void) { one_op(WR_SEND, 5); }

static wr_op waited;
static void wait_mark(void) { wr_wait_end(ring, &waited, wr_wait_begin(ring, &waited, WR_WAIT_CALL)); }
static void issued_mark(void) { wr_op_issued(ring, &waited); }
static void frame_count(void) { wr_frame_count(ring, 3, 0); }

static void connection_count(void) {
  wr_connection_count(&ring->connection[0], 0, 100, wr_now_ns());
  wr_frame_count(ring, 0, 0);
}

static wr_frame copy;
static const wr_ring *mapped;
static void frame_pread(void) {
  if (pread(ring_fd, &copy, sizeof copy, offsetof(wr_ring, frame)) != (ssize_t)sizeof copy) abort();
}
static void frame_mapped(void) {
  const wr_word *from = (const wr_word *)(const void *)&mapped->frame;
  wr_word *to = (wr_word *)(void *)&copy;
  for (size_t i = 0; i < sizeof copy / 8; i++) to[i] = LOAD(&from[i]);
}

static int by_value(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

static void measure(const char *name, void (*call)(void)) {
  double ns[RUNS];
  for (int run = -2; run < RUNS; run++) {
    uint64_t start = wr_now_ns();
    for (int i = 0; i < CALLS; i++) call();
    if (run >= 0) ns[run] = (double)(wr_now_ns() - start) / CALLS;
  }
  qsort(ns, RUNS, sizeof *ns, by_value);
  printf("  \"%s\": {\"median_ns\": %.2f, \"min_ns\": %.2f, \"p90_ns\": %.2f, \"max_ns\": %.2f, \"n\": %d, \"calls\": %d},\n",
         name, ns[RUNS / 2], ns[0], ns[RUNS * 9 / 10], ns[RUNS - 1], RUNS, CALLS);
}

static double cpu_s(void) {
  struct rusage u;
  getrusage(RUSAGE_SELF, &u);
  return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) + 1e-6 * (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec);
}

/* The sampler's share of one core with 8 rings: in bursts of 40 ms each second as the agent does, and all the time. */
static void measure_sampler(const char *name, int always, const char *end) {
  const int seconds = 4;
  wr_sampler_start(1000, 40, 1000);
  for (uint64_t id = 0; id < 8; id++) wr_sampler_add(ring_fd, id);
  wr_sampler_always(always);
  double before = cpu_s();
  sleep((unsigned)seconds);
  double share = (cpu_s() - before) / seconds;
  wr_sampler_stop();
  printf("  \"%s\": {\"core_percent\": %.3f, \"rings\": 8, \"seconds\": %d}%s\n", name, 100 * share, seconds, end);
}

int bench_ring(void) {
  ring = ring_new_at(&ring_fd);
  slot = comm_new(ring, 8);
  waited = op_new(slot, WR_ALL_REDUCE, -1);
  wr_op_begin(ring, &waited);
  mapped = mmap(NULL, sizeof *mapped, PROT_READ, MAP_SHARED, ring_fd, 0);
  if (mapped == MAP_FAILED) return 1;
  puts("{");
  measure("empty_loop", empty);
  measure("clock", clock_read);
  measure("push", push);
  measure("trace_id", trace);
  measure("op_begin_end", collective);
  measure("op_begin_end_send", send_to_peer);
  measure("wait_begin_end", wait_mark);
  measure("op_issued", issued_mark);
  measure("frame_count", frame_count);
  measure("connection_and_frame_count", connection_count);
  measure("frame_read_pread", frame_pread);
  measure("frame_read_mapped", frame_mapped);
  measure_sampler("sampler_bursts", 0, ",");
  measure_sampler("sampler_always", 1, "");
  puts("}");
  return 0;
}
