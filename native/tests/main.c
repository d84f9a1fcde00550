/* The native test program: whichrank_tests [PART OF A NAME] | --list | --bench */
#define _GNU_SOURCE 1
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <fcntl.h>
#include <unistd.h>

#include "atomics.h"
#include "check.h"

static test *first;
static uint32_t current_failed; /* threads of a test may fail too */
static const char *current_skipped;

void test_register(test *t) {
  test **at = &first;
  while (*at && strcmp((*at)->name, t->name) < 0) at = &(*at)->next;
  t->next = *at;
  *at = t;
}

void test_fail(const char *file, int line, const char *what) {
  if (ADD(&current_failed, 1) <= 10) fprintf(stderr, "  %s:%d: %s\n", file, line, what);
}

void test_skip(const char *why) { current_skipped = why; }

static wr_ring *ring_at(int *fd) {
  static int number;
  char path[128];
  wr_identity identity = {3, 1, 8, 4, 0, "host-a", "job-a"};
  snprintf(path, sizeof path, "/dev/shm/whichrank-test.%d.%d", (int)getpid(), number++);
  wr_ring *ring = wr_ring_create(path, &identity);
  if (!ring) {
    perror(path);
    exit(1);
  }
  if (fd) *fd = open(path, O_RDWR | O_CLOEXEC);
  unlink(path);
  return ring;
}

wr_ring *ring_new(void) { return ring_at(NULL); }
wr_ring *ring_new_at(int *fd) { return ring_at(fd); }

int comm_new(wr_ring *ring, uint32_t size) {
  int32_t *members = malloc(size * sizeof *members);
  for (uint32_t i = 0; i < size; i++) members[i] = (int32_t)i;
  int slot = wr_comm_open(ring, "world", "default", "gloo", size, 3, members, 1000);
  free(members);
  return slot;
}

wr_op op_new(int slot, int kind, int32_t peer) {
  wr_op op = {.comm_slot = (uint16_t)slot, .kind = (uint8_t)kind, .peer = peer, .count = 7, .timeout_ms = 1000};
  return op;
}

int exit_of(pid_t child) {
  int status = 0;
  if (child < 0 || waitpid(child, &status, 0) != child) return -1;
  return WIFEXITED(status) ? WEXITSTATUS(status) : 100 + WTERMSIG(status);
}

#ifdef WHICHRANK_COVERAGE
void __gcov_dump(void);
#else
static void __gcov_dump(void) {}
#endif

void child_exit(int status) {
  __gcov_dump();
  _exit(status);
}

int in_child(int (*body)(void)) {
  fflush(NULL);
  pid_t child = fork();
  if (!child) child_exit(body());
  return exit_of(child);
}

uint64_t random_next(uint64_t *state) { return wr_mix64(++*state); }

/* In whole words: a row's times change under its version, too. */
int read_row(const void *from, void *to, size_t size) {
  const wr_half *version = from;
  const wr_word *source = from;
  wr_word *target = to;
  uint32_t before = LOAD_ACQUIRE(version);
  if (before & 1) return 0;
  for (size_t i = 0; i < size / 8; i++) target[i] = LOAD_ACQUIRE(&source[i]);
  return LOAD(version) == before;
}

int read_record(const wr_ring *ring, uint64_t index, wr_record *to) {
  const wr_word *source = (const wr_word *)(const void *)&ring->record[index % WR_RECORDS];
  wr_word *target = (wr_word *)(void *)to;
  uint64_t want = 2 * index + 2, before = LOAD_ACQUIRE(&source[0]);
  if (before != want) return before > want ? -1 : 0;
  for (int i = 1; i < 8; i++) target[i] = LOAD_ACQUIRE(&source[i]);
  target[0] = want;
  return LOAD(&source[0]) == want ? 1 : -1;
}

static double seconds(void) { return (double)wr_now_ns() * 1e-9; }

int main(int argc, char **argv) {
  const char *part = argc > 1 ? argv[1] : "";
  int passed = 0, failed = 0, skipped = 0;
  setvbuf(stdout, NULL, _IOLBF, 0);
  if (!strcmp(part, "--bench")) return bench_ring();
  for (test *t = first; t; t = t->next) {
    if (!strcmp(part, "--list")) puts(t->name);
    if (!strstr(t->name, part)) continue;
    current_failed = 0;
    current_skipped = NULL;
    double start = seconds();
    t->run();
    wr_ring_disable(); /* the next test has a ring of its own */
    failed += current_failed != 0;
    skipped += !current_failed && current_skipped;
    passed += !current_failed && !current_skipped;
    printf("%-7s %-56s %6.2f s%s%s\n", current_failed ? "FAILED" : current_skipped ? "skipped" : "ok", t->name,
           seconds() - start, current_skipped ? ": " : "", current_skipped ? current_skipped : "");
  }
  if (!strcmp(part, "--list")) return 0;
  printf("%d passed, %d failed, %d skipped\n", passed, failed, skipped);
  return failed || !(passed + skipped);
}
