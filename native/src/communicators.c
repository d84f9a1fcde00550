/* The communicator table: cold path, one mutex, called when a process group is first seen or goes away. */
#include <pthread.h>
#include <string.h>

#include "atomics.h"
#include "internal.h"
#include "whichrank/ring.h"

enum { GENERATIONS = 1024 };

static pthread_mutex_t opening = PTHREAD_MUTEX_INITIALIZER;
/* How often this process made a communicator of given name and members: names recur after a re-init. */
static struct { uint64_t base; uint32_t count; } generation[GENERATIONS];

static uint64_t hash_text(uint64_t seed, const char *text) {
  for (; *text; text++) seed = wr_mix64(seed ^ (unsigned char)*text);
  return seed;
}

static uint64_t base_id(const wr_ring *ring, const char *name, uint32_t size, const int32_t *members) {
  uint64_t id = hash_text(UINT64_C(0x77686963687261) ^ size, name);
  id = wr_mix64(id ^ (uint64_t)(uint32_t)ring->header.restart_count);
  for (uint32_t i = 0; members && i < size; i++) id = wr_mix64(id ^ (uint32_t)members[i]);
  return id;
}

static uint32_t next_generation(uint64_t base) {
  for (uint32_t probe = 0; probe < GENERATIONS; probe++) {
    uint32_t at = (uint32_t)((base + probe) % GENERATIONS);
    if (!generation[at].count) generation[at].base = base;
    if (generation[at].base == base) return ++generation[at].count;
  }
  return 1;
}

/* Members are mostly a range: first, stride. Else they are appended to the members area. */
static void set_members(wr_ring *ring, wr_comm *c, const int32_t *members, uint32_t size) {
  c->members_at = -2;
  if (!members || !size) return;
  c->first = members[0];
  int64_t first = members[0], stride = size > 1 ? (int64_t)members[1] - first : 1;
  c->stride = (int32_t)stride;
  uint32_t i = 1;
  while (i < size && members[i] == first + stride * (int64_t)i) i++;
  if (i == size) {
    c->members_at = -1;
    return;
  }
  uint32_t used = LOAD(&ring->header.members_used);
  for (uint32_t at = 0; size <= used && at <= used - size; at++) /* the same list again, after a re-init */
    if (!memcmp(&ring->members[at], members, size * sizeof *members)) {
      c->members_at = (int32_t)at;
      return;
    }
  if (size > WR_MEMBERS - used) return;
  memcpy(&ring->members[used], members, size * sizeof *members);
  STORE(&ring->header.members_used, used + size);
  c->members_at = (int32_t)used;
}

static int free_slot(const wr_ring *ring) {
  int closed = -1;
  for (int i = 0; i < WR_COMMS; i++) {
    uint32_t state = LOAD(&ring->comm[i].state);
    if (!state) return i;
    if (state == 2 && (closed < 0 || LOAD(&ring->comm[i].last_done_ns) < LOAD(&ring->comm[closed].last_done_ns)))
      closed = i;
  }
  return closed;
}

/* Give back the pairs of a communicator. A pair with an operation still in flight is kept until its slot is reused: its
 * end would else be counted on whoever gets the row next. A free row is all zero. */
static void free_pairs(wr_ring *ring, int slot, int busy_too) {
  for (int i = 0; i < WR_PAIRS; i++) {
    wr_pair *p = &ring->pair[i];
    if (!LOAD(&p->key) || LOAD(&p->comm_slot) != slot) continue;
    if (!busy_too && LOAD(&p->completed) < LOAD(&p->issued)) continue;
    wr_word *words = (wr_word *)(void *)p;
    for (size_t word = 1; word < sizeof *p / sizeof *words; word++) STORE(&words[word], 0);
    STORE_RELEASE(&p->key, 0);
  }
}

/* The row as a whole, behind its version: readers and late writers of other threads see whole words only. */
static void publish(wr_comm *to, const wr_comm *from) {
  uint32_t version = LOAD(&to->version) | 1u;
  STORE_RELEASE(&to->version, version);
  WR_FENCE();
  const wr_half *source = (const wr_half *)(const void *)from;
  wr_half *words = (wr_half *)(void *)to;
  for (size_t i = 1; i < sizeof *to / sizeof *words; i++) STORE(&words[i], source[i]);
  STORE_RELEASE(&to->version, version + 1);
}

int wr_comm_open(wr_ring *ring, const char *name, const char *desc, const char *backend, uint32_t size,
                 uint32_t group_rank, const int32_t *members, uint32_t timeout_ms) {
  pthread_mutex_lock(&opening);
  int slot = free_slot(ring);
  if (slot < 0) {
    ADD(&ring->header.dropped_comms, 1);
    pthread_mutex_unlock(&opening);
    return -1;
  }
  wr_comm row, *c = &row;
  memset(c, 0, sizeof row);
  free_pairs(ring, slot, 1);
  uint64_t base = base_id(ring, name, size, members);
  c->generation = next_generation(base);
  c->comm_id = wr_mix64(base ^ c->generation);
  c->epoch = (LOAD(&ring->comm[slot].epoch) + 1) & 0xff;
  c->size = size;
  c->group_rank = group_rank;
  c->timeout_ms = timeout_ms;
  c->opened_ns = wr_now_ns();
  set_members(ring, c, members, size);
  strncpy(c->name, name, sizeof c->name - 1);
  strncpy(c->desc, desc, sizeof c->desc - 1);
  strncpy(c->backend, backend, sizeof c->backend - 1);
  c->state = 1;
  publish(&ring->comm[slot], c);
  if (!LOAD(&ring->header.init_ns)) STORE(&ring->header.init_ns, c->opened_ns);
  pthread_mutex_unlock(&opening);
  return slot;
}

void wr_comm_close(wr_ring *ring, int slot) {
  if (slot < 0 || slot >= WR_COMMS) return;
  pthread_mutex_lock(&opening);
  wr_comm *c = &ring->comm[slot];
  STORE_RELEASE(&c->version, LOAD(&c->version) + 1);
  STORE(&c->state, 2u);
  STORE_RELEASE(&c->version, LOAD(&c->version) + 1);
  free_pairs(ring, slot, 0);
  pthread_mutex_unlock(&opening);
}

const char *wr_comm_name(const wr_ring *ring, int slot) {
  return slot >= 0 && slot < WR_COMMS && LOAD(&ring->comm[slot].state) == 1 ? ring->comm[slot].name : NULL;
}

void wr_comm_set_timeout(wr_ring *ring, int slot, uint32_t timeout_ms) {
  if (slot < 0 || slot >= WR_COMMS) return;
  pthread_mutex_lock(&opening); /* so that the slot is not given to another meanwhile */
  if (ring->comm[slot].state == 1) STORE(&ring->comm[slot].timeout_ms, timeout_ms);
  pthread_mutex_unlock(&opening);
}

void wr_forget_communicators(void) {
  pthread_mutex_init(&opening, NULL); /* another thread of the parent may have held it */
  memset(generation, 0, sizeof generation);
}

/* hot */

wr_trace_id wr_trace(const wr_ring *ring, int comm_slot, uint32_t counter) {
  wr_trace_id id = {LOAD(&ring->comm[comm_slot].comm_id), counter, 0};
  return id;
}

/* end hot */
