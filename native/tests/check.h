/* A test runner in one header: TEST(name) registers itself, CHECK goes on, REQUIRE and SKIP leave the test. */
#ifndef WHICHRANK_CHECK_H
#define WHICHRANK_CHECK_H

#include <stddef.h>
#include <stdio.h>
#include <sys/types.h>

#include "whichrank/ring.h"

typedef struct test {
  const char *name;
  void (*run)(void);
  struct test *next;
} test;

void test_register(test *t);
void test_fail(const char *file, int line, const char *what);
void test_skip(const char *why);

#define TEST(test_name) \
  static void test_name(void); \
  __attribute__((constructor)) static void register_##test_name(void) { \
    static test t = {#test_name, test_name, NULL}; \
    test_register(&t); \
  } \
  static void test_name(void)

#define CHECK(condition) ((condition) ? (void)0 : test_fail(__FILE__, __LINE__, #condition))
#define CHECK_EQUAL(a, b) \
  do { \
    long long left_ = (long long)(a), right_ = (long long)(b); \
    char text_[256]; \
    snprintf(text_, sizeof text_, "%s == %s (%lld, %lld)", #a, #b, left_, right_); \
    if (left_ != right_) test_fail(__FILE__, __LINE__, text_); \
  } while (0)
#define REQUIRE(condition) \
  do { \
    if (!(condition)) { \
      test_fail(__FILE__, __LINE__, #condition); \
      return; \
    } \
  } while (0)
#define SKIP(why) \
  do { \
    test_skip(why); \
    return; \
  } while (0)

/* ---- what most tests start from -------------------------------------------------------------------- */

/* A new ring of this process in /dev/shm; its file is gone from the folder at once. */
wr_ring *ring_new(void);
/* The same, and the file stays open at *fd. */
wr_ring *ring_new_at(int *fd);
/* A communicator of `size` ranks 0.. on it. */
int comm_new(wr_ring *ring, uint32_t size);
wr_op op_new(int slot, int kind, int32_t peer);
/* Run `body` in a forked child: its exit status, 100 + signal if one killed it. */
int in_child(int (*body)(void));
int exit_of(pid_t child);
/* End a forked child, of whose lines gcov is to know, without the rest of an exit. */
__attribute__((noreturn)) void child_exit(int status);
uint64_t random_next(uint64_t *state);

/* ---- the reader's side of the contract: atomic loads between two looks at the version --------------- */

/* 1: `to` is one row (or record) as some writer left it; 0: it was being written. `version` is its first word. */
int read_row(const void *from, void *to, size_t size);
/* The record of push `index`: 1 copied, 0 not there yet (or dropped), -1 overwritten. */
int read_record(const wr_ring *ring, uint64_t index, wr_record *to);

int bench_ring(void);

#endif
