/* What the hot path costs, seen from outside the library: JSON of ns per call, one list of runs for each name. */
#include <stdio.h>
#include <unistd.h>

#include "whichrank/ring.h"

enum { RUNS = 41, CALLS = 20000 };

static wr_ring *ring;
static int slot;
static volatile uint64_t sink;

static void push(void) {
  wr_record record = {.t_issue_ns = 1};
  wr_push(ring, &record);
}

static void trace_id(void) {
  static uint32_t counter;
  wr_trace_id id = wr_trace(ring, slot, ++counter);
  sink = id.comm_id ^ id.counter;
}

static void op_begin_end(void) {
  wr_op op = {.comm_slot = (uint16_t)slot, .kind = WR_ALL_REDUCE, .peer = -1};
  wr_op_begin(ring, &op);
  wr_op_end(ring, &op, WR_DONE);
}

/* As the sensor asks before each operation. */
static void gated_op_begin_end(void) {
  if (__builtin_expect(__atomic_load_n(&ring->gate_closed, __ATOMIC_RELAXED), 0)) wr_gate_pass(ring);
  op_begin_end();
}

static double ns_each(void (*call)(void)) {
  uint64_t start = wr_now_ns();
  for (int i = 0; i < CALLS; i++) call();
  return (double)(wr_now_ns() - start) / CALLS;
}

/* By how much one call takes longer than another, by turns. */
static void compare(const char *name, void (*with)(void), void (*without)(void)) {
  printf("\"%s\": [", name);
  for (int run = -2; run < RUNS; run++) {
    double first = ns_each(run % 2 ? with : without), second = ns_each(run % 2 ? without : with);
    if (run >= 0) printf("%s%.2f", run ? ", " : "", run % 2 ? first - second : second - first);
  }
  printf("]");
}

static void measure(const char *name, void (*call)(void)) {
  printf("\"%s\": [", name);
  for (int run = -2; run < RUNS; run++) {
    double ns = ns_each(call);
    if (run >= 0) printf("%s%.2f", run ? ", " : "", ns);
  }
  printf("]");
}

int main(int count, char **arguments) {
  wr_identity identity = {.world_size = 1, .host = "bench", .job = "bench"};
  if (count < 2 || !(ring = wr_ring_create(arguments[1], &identity))) return 1;
  unlink(arguments[1]);
  slot = wr_comm_open(ring, "0", "bench", "none", 1, 0, NULL, 0);
  printf("{");
  measure("ring push", push);
  printf(", ");
  measure("trace ID", trace_id);
  printf(", ");
  measure("op begin and end", op_begin_end);
  printf(", ");
  compare("open gate, added to an op", gated_op_begin_end, op_begin_end);
  printf("}\n");
  return 0;
}
