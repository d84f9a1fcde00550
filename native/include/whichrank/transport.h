/* Connections and the probing frame's counters: what a transport sensor writes into the ring.
 *
 * All of it is inline, since the socket sensor is preloaded into every process of the job and cannot link to the
 * core, which Python loads later and often privately. Rows are claimed by making their version odd with one exchange;
 * counters are relaxed adds. Nothing blocks, allocates or enters the kernel.
 *
 * A message is one call that moved at least one byte. A closed row keeps its counts until the table is full and
 * somebody needs it, so that a connection that died in a hang can still be read.
 */
#ifndef WHICHRANK_TRANSPORT_H
#define WHICHRANK_TRANSPORT_H

#include "whichrank/ring.h"

enum wr_connection_state { WR_CONNECTION_FREE = 0, WR_CONNECTION_OPEN = 1, WR_CONNECTION_CLOSED = 2 };

/* The same bytes as in wr_connection from `local_addr` on; copied and compared as words, since rows change hands. */
typedef struct __attribute__((aligned(4))) {
  uint8_t local_addr[16], remote_addr[16]; /* IPv6, or IPv4 mapped */
  uint16_t local_port, remote_port;
} wr_endpoints;
typedef uint32_t __attribute__((may_alias)) wr_endpoint_word;
enum { WR_ENDPOINT_WORDS = sizeof(wr_endpoints) / 4 };
WR_ASSERT(sizeof(wr_endpoints) == 36 && offsetof(wr_connection, fd) == offsetof(wr_connection, local_addr) + 36,
          "end points are the same bytes in both");

/* hot */

static inline uint64_t wr_connection_last_ns(const wr_connection *c) {
  uint64_t sent = __atomic_load_n(&c->last_send_ns, __ATOMIC_RELAXED);
  uint64_t received = __atomic_load_n(&c->last_receive_ns, __ATOMIC_RELAXED);
  return sent > received ? sent : received;
}

static inline int wr_connection_is(const wr_connection *c, const wr_endpoints *e) {
  const wr_endpoint_word *have = (const wr_endpoint_word *)(const void *)c->local_addr;
  const wr_endpoint_word *want = (const wr_endpoint_word *)(const void *)e;
  if (__atomic_load_n(&c->state, __ATOMIC_ACQUIRE) != WR_CONNECTION_OPEN) return 0;
  for (int i = WR_ENDPOINT_WORDS - 1; i >= 0; i--) /* the ports, which differ first, are last */
    if (__atomic_load_n(&have[i], __ATOMIC_RELAXED) != want[i]) return 0;
  return 1;
}

/* end hot */

/* Own the row if it is still in `state`; its version is odd until wr_connection_publish. */
static inline int wr_connection_lock(wr_connection *c, uint32_t state) {
  uint32_t version = __atomic_load_n(&c->version, __ATOMIC_RELAXED);
  if (version & 1 || __atomic_load_n(&c->state, __ATOMIC_RELAXED) != state) return 0;
  if (!__atomic_compare_exchange_n(&c->version, &version, version | 1, 0, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED)) return 0;
#ifndef __SANITIZE_THREAD__ /* knows no fences, and its atomics are never reordered */
  __atomic_thread_fence(__ATOMIC_RELEASE);
#endif
  if (__atomic_load_n(&c->state, __ATOMIC_RELAXED) == state) return 1;
  __atomic_store_n(&c->version, version, __ATOMIC_RELEASE); /* it changed hands in between */
  return 0;
}

static inline void wr_connection_publish(wr_connection *c, uint32_t state) {
  __atomic_store_n(&c->state, state, __ATOMIC_RELEASE);
  __atomic_store_n(&c->version, __atomic_load_n(&c->version, __ATOMIC_RELAXED) + 1, __ATOMIC_RELEASE);
}

static inline int wr_connection_spare(const wr_connection *table, uint32_t *was) {
  int oldest = -1;
  *was = WR_CONNECTION_FREE;
  for (int i = 0; i < WR_CONNECTIONS; i++) {
    if (__atomic_load_n(&table[i].version, __ATOMIC_RELAXED) & 1) continue; /* another thread is taking it */
    uint32_t state = __atomic_load_n(&table[i].state, __ATOMIC_RELAXED);
    if (state == WR_CONNECTION_FREE) return i;
    if (state != WR_CONNECTION_CLOSED) continue;
    if (oldest < 0 || wr_connection_last_ns(&table[i]) < wr_connection_last_ns(&table[oldest])) oldest = i;
  }
  *was = WR_CONNECTION_CLOSED;
  return oldest;
}

/* The row of a connection: the one it has, a free one, or that of the connection closed longest ago. -1: all open. */
static inline int wr_connection_open(wr_connection *table, const wr_endpoints *e, int32_t fd) {
  for (int i = 0; i < WR_CONNECTIONS; i++)
    if (wr_connection_is(&table[i], e)) return i;
  for (int attempt = 0; attempt < WR_CONNECTIONS; attempt++) {
    uint32_t was;
    int row = wr_connection_spare(table, &was);
    if (row < 0) return -1;
    wr_connection *c = &table[row];
    if (!wr_connection_lock(c, was)) continue; /* lost to another thread: look again */
    wr_endpoint_word *to = (wr_endpoint_word *)(void *)c->local_addr;
    const wr_endpoint_word *from = (const wr_endpoint_word *)(const void *)e;
    for (int i = 0; i < WR_ENDPOINT_WORDS; i++) __atomic_store_n(&to[i], from[i], __ATOMIC_RELAXED);
    __atomic_store_n(&c->fd, fd, __ATOMIC_RELAXED);
    uint64_t *const counters[] = {&c->messages_sent,     &c->bytes_sent,   &c->messages_received,
                                  &c->bytes_received, &c->last_send_ns, &c->last_receive_ns};
    for (size_t i = 0; i < sizeof counters / sizeof *counters; i++) __atomic_store_n(counters[i], 0, __ATOMIC_RELAXED);
    for (int i = 0; i < WR_PACES; i++) {
      __atomic_store_n(&c->pace[i].bytes, 0, __ATOMIC_RELAXED);
      __atomic_store_n(&c->pace[i].ns, 0, __ATOMIC_RELAXED);
    }
    wr_connection_publish(c, WR_CONNECTION_OPEN);
    return row;
  }
  return -1;
}

static inline void wr_connection_close(wr_connection *c) {
  if (wr_connection_lock(c, WR_CONNECTION_OPEN)) wr_connection_publish(c, WR_CONNECTION_CLOSED);
}

/* hot */

/* A read that comes later than this after the one before begins something new: nothing is known of its pace. */
enum { WR_PACE_NS = 10 * 1000 * 1000 };

/* Class by the powers of two of both numbers, since a division would cost as much as all the rest. */
static inline int wr_pace_class(uint64_t bytes, uint64_t ns) {
  int class = __builtin_clzll(ns | 1) - __builtin_clzll(bytes | 1) + 13; /* from 2^-13 bytes per ns, 2^17 per second */
  return class < 0 ? 0 : class / 2 < WR_PACES ? class / 2 : WR_PACES - 1;
}

static inline void wr_connection_pace(wr_connection *c, uint64_t bytes, uint64_t now_ns) {
  uint64_t last = __atomic_load_n(&c->last_receive_ns, __ATOMIC_RELAXED);
  if (!last || now_ns <= last || now_ns - last >= WR_PACE_NS) return;
  wr_pace *pace = &c->pace[wr_pace_class(bytes, now_ns - last)];
  __atomic_fetch_add(&pace->bytes, bytes, __ATOMIC_RELAXED);
  __atomic_fetch_add(&pace->ns, now_ns - last, __ATOMIC_RELAXED);
}

static inline void wr_connection_count(wr_connection *c, int received, uint64_t bytes, uint64_t now_ns) {
  if (received) wr_connection_pace(c, bytes, now_ns);
  __atomic_fetch_add(received ? &c->messages_received : &c->messages_sent, 1, __ATOMIC_RELAXED);
  __atomic_fetch_add(received ? &c->bytes_received : &c->bytes_sent, bytes, __ATOMIC_RELAXED);
  __atomic_store_n(received ? &c->last_receive_ns : &c->last_send_ns, now_ns, __ATOMIC_RELAXED);
}

/* Count one message on the channel of `connection` in the current operation's block. The first seven connections of
 * an operation get a channel each, the last channel is the sum of the rest; -1 is a connection without a row. */
static inline void wr_frame_count_inline(wr_ring *ring, int connection, int received) {
  uint64_t at = __atomic_load_n(&ring->frame.op_counter, __ATOMIC_ACQUIRE) % WR_FRAME_BLOCKS;
  uint16_t *peer = ring->frame_peer[at], want = (uint16_t)(connection + 1);
  int channel = want ? 0 : WR_FRAME_CHANNELS - 1;
  for (; channel < WR_FRAME_CHANNELS - 1; channel++) {
    uint16_t seen = __atomic_load_n(&peer[channel], __ATOMIC_RELAXED);
    if (seen == want) break;
    if (seen) continue;
    if (__atomic_compare_exchange_n(&peer[channel], &seen, want, 0, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) break;
    if (seen == want) break;
  }
  wr_channel *c = &ring->frame.block[at].channel[channel];
  __atomic_fetch_add(received ? &c->recv_count : &c->send_count, 1, __ATOMIC_RELAXED);
}

/* end hot */

#endif
