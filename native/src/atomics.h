/* Relaxed atomics with short names: every shared field goes through these. */
#ifndef WHICHRANK_ATOMICS_H
#define WHICHRANK_ATOMICS_H

#include <stdint.h>

/* A struct seen as words: without may_alias the compiler may move its field writes behind the word reads. */
typedef uint64_t __attribute__((may_alias)) wr_word;
typedef uint32_t __attribute__((may_alias)) wr_half;

#define LOAD(p) __atomic_load_n((p), __ATOMIC_RELAXED)
#define STORE(p, v) __atomic_store_n((p), (v), __ATOMIC_RELAXED)
#define LOAD_ACQUIRE(p) __atomic_load_n((p), __ATOMIC_ACQUIRE)
#define STORE_RELEASE(p, v) __atomic_store_n((p), (v), __ATOMIC_RELEASE)
#define ADD(p, v) __atomic_add_fetch((p), (v), __ATOMIC_RELAXED)

/* Orders the mark "being written" before the writes that follow it. ThreadSanitizer does not know fences (and gcc says
 * so with an error); its atomics are calls that are never reordered, so there it may be empty. */
#ifdef __SANITIZE_THREAD__
#define WR_FENCE() ((void)0)
#else
#define WR_FENCE() __atomic_thread_fence(__ATOMIC_RELEASE)
#endif

static inline int wr_cas64(uint64_t *at, uint64_t *expected, uint64_t desired) {
  return __atomic_compare_exchange_n(at, expected, desired, 0, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED);
}

static inline int wr_cas32(uint32_t *at, uint32_t *expected, uint32_t desired) {
  return __atomic_compare_exchange_n(at, expected, desired, 0, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED);
}

/* splitmix64: a bijection, so equal inputs and only these give equal outputs. */
static inline uint64_t wr_mix64(uint64_t x) {
  x += UINT64_C(0x9e3779b97f4a7c15);
  x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
  x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
  return x ^ (x >> 31);
}

#endif
