/* The communicator table: identity, generations, members, slots released and used again. */
#define _GNU_SOURCE 1
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "atomics.h"
#include "check.h"

static int open_as(wr_ring *ring, const char *name, const int32_t *members, uint32_t size) {
  return wr_comm_open(ring, name, "desc", "gloo", size, 0, members, 1000);
}

TEST(comm_open_describes_it) {
  wr_ring *ring = ring_new();
  int slot = comm_new(ring, 8);
  wr_comm c;
  REQUIRE(slot == 0 && read_row(&ring->comm[slot], &c, sizeof c));
  CHECK(c.state == 1 && c.size == 8 && c.group_rank == 3 && c.timeout_ms == 1000 && c.epoch == 1);
  CHECK(c.members_at == -1 && c.first == 0 && c.stride == 1);
  CHECK(!strcmp(c.name, "world") && !strcmp(c.desc, "default") && !strcmp(c.backend, "gloo"));
  CHECK(c.issued == 0 && c.done == 0 && c.completed == 0);
  CHECK(ring->header.init_ns == c.opened_ns && c.opened_ns);
}

TEST(comm_timeout_is_that_of_the_latest_change) {
  wr_ring *ring = ring_new();
  int slot = comm_new(ring, 8);
  uint32_t version = ring->comm[slot].version;
  wr_comm_set_timeout(ring, slot, 5000);
  CHECK_EQUAL(ring->comm[slot].timeout_ms, 5000);
  CHECK_EQUAL(ring->comm[slot].version, version); /* the row stays whose it was */
  wr_comm_set_timeout(ring, -1, 7000);
  wr_comm_set_timeout(ring, WR_COMMS, 7000);
  wr_comm_close(ring, slot);
  wr_comm_set_timeout(ring, slot, 7000); /* too late: it may be given to another one */
  CHECK_EQUAL(ring->comm[slot].timeout_ms, 5000);
}

TEST(comm_id_is_equal_on_members_and_tells_generations_apart) {
  static const int32_t tp[] = {0, 1, 2, 3}, other[] = {4, 5, 6, 7};
  wr_ring *ring = ring_new();
  int a = open_as(ring, "tp", tp, 4), b = open_as(ring, "tp", other, 4);
  uint64_t first = ring->comm[a].comm_id;
  CHECK(first != ring->comm[b].comm_id); /* same name, other members */
  CHECK_EQUAL(ring->comm[a].generation, ring->comm[b].generation);
  wr_comm_close(ring, a);
  int again = open_as(ring, "tp", tp, 4); /* names recur after a re-init */
  CHECK(ring->comm[again].generation == ring->comm[a].generation + 1);
  CHECK(ring->comm[again].comm_id != first);
  CHECK(wr_trace(ring, again, 9).comm_id == ring->comm[again].comm_id && wr_trace(ring, again, 9).counter == 9);
}

TEST(comm_members_as_range_list_or_unknown) {
  static const int32_t every4th[] = {1, 5, 9, 13}, odd[] = {0, 1, 2, 9}, down[] = {3, 2, 1, 0};
  static const int32_t far[] = {0, INT32_MAX, INT32_MIN}, alone[] = {6};
  wr_ring *ring = ring_new();
  wr_comm *c = &ring->comm[open_as(ring, "a", every4th, 4)];
  CHECK(c->members_at == -1 && c->first == 1 && c->stride == 4);
  c = &ring->comm[open_as(ring, "b", odd, 4)];
  CHECK(c->members_at == 0 && !memcmp(ring->members, odd, sizeof odd) && ring->header.members_used == 4);
  c = &ring->comm[open_as(ring, "c", down, 4)];
  CHECK(c->members_at == -1 && c->first == 3 && c->stride == -1);
  c = &ring->comm[open_as(ring, "d", far, 3)];
  CHECK(c->members_at == 4);
  c = &ring->comm[open_as(ring, "again", odd, 4)];
  CHECK(c->members_at == 0 && ring->header.members_used == 7); /* listed once */
  c = &ring->comm[open_as(ring, "e", alone, 1)];
  CHECK(c->members_at == -1 && c->first == 6);
  c = &ring->comm[open_as(ring, "f", NULL, 4)];
  CHECK(c->members_at == -2);
  int32_t *many = malloc((WR_MEMBERS + 1) * sizeof *many);
  for (int i = 0; i <= WR_MEMBERS; i++) many[i] = i ^ 5;
  c = &ring->comm[open_as(ring, "more than fit", many, WR_MEMBERS + 1)];
  CHECK(c->members_at == -2 && ring->header.members_used == 7);
  free(many);
}

TEST(comm_long_names_are_cut) {
  wr_ring *ring = ring_new();
  char longest[300];
  memset(longest, 'n', sizeof longest - 1);
  longest[sizeof longest - 1] = 0;
  int slot = wr_comm_open(ring, longest, longest, longest, 1, 0, NULL, 0);
  CHECK_EQUAL(strlen(ring->comm[slot].name), 63);
  CHECK_EQUAL(strlen(ring->comm[slot].desc), 63);
  CHECK_EQUAL(strlen(ring->comm[slot].backend), 15);
}

TEST(comm_table_full_is_counted_and_closed_slots_are_reused) {
  wr_ring *ring = ring_new();
  for (int i = 0; i < WR_COMMS; i++) CHECK_EQUAL(comm_new(ring, 4), i);
  CHECK_EQUAL(comm_new(ring, 4), -1);
  CHECK_EQUAL(ring->header.dropped_comms, 1);
  wr_op op = op_new(77, WR_ALL_REDUCE, -1);
  wr_op_begin(ring, &op);
  uint32_t version = ring->comm[77].version;
  wr_comm_close(ring, 77);
  CHECK(ring->comm[77].state == 2 && ring->comm[77].version != version);
  CHECK_EQUAL(ring->comm[77].issued, 1); /* readable until it is needed */
  CHECK_EQUAL(comm_new(ring, 4), 77);
  CHECK(ring->comm[77].state == 1 && ring->comm[77].epoch == 2 && ring->comm[77].issued == 0);
  wr_op_end(ring, &op, WR_DONE); /* of the slot's former owner: not counted on the new one */
  CHECK(ring->comm[77].completed == 0 && ring->comm[77].done == 0);
  CHECK_EQUAL(ring->header.head, 1);
  CHECK_EQUAL(ring->record[0].epoch, 1);
  CHECK_EQUAL(ring->inflight_used, 0);
  wr_comm_close(ring, -1);
  wr_comm_close(ring, WR_COMMS);
}

TEST(comm_none_makes_operations_harmless) {
  wr_ring *ring = ring_new();
  wr_op op = op_new(-1, WR_ALL_REDUCE, -1);
  wr_op_begin(ring, &op);
  wr_op_issued(ring, &op);
  wr_op_flag(ring, &op, WR_FLAG_ASYNC);
  int row = wr_wait_begin(ring, &op, WR_WAIT_CALL);
  CHECK_EQUAL(row, -1);
  wr_wait_end(ring, &op, row);
  wr_op_end(ring, &op, WR_DONE);
  CHECK(!ring->header.head && !ring->header.ordinal && !ring->inflight_used && !ring->waits_used);
}

TEST(comm_close_releases_its_pairs) {
  wr_ring *ring = ring_new();
  int a = comm_new(ring, 8), b = comm_new(ring, 8), used = 0;
  wr_op stuck = op_new(a, WR_RECV, 5);
  for (int peer = 0; peer < 4; peer++) {
    wr_op op = op_new(a, WR_SEND, peer), of_b = op_new(b, WR_SEND, peer);
    wr_op_begin(ring, &op), wr_op_end(ring, &op, WR_DONE);
    wr_op_begin(ring, &of_b), wr_op_end(ring, &of_b, WR_DONE);
  }
  wr_op_begin(ring, &stuck);
  wr_comm_close(ring, a);
  for (int i = 0; i < WR_PAIRS; i++) used += ring->pair[i].key != 0;
  CHECK_EQUAL(used, 5); /* four of b, and the one whose operation is still under way */
  wr_op_end(ring, &stuck, WR_DROPPED);
  CHECK_EQUAL(ring->pair[stuck.pair].completed, 1);
  wr_comm_close(ring, b);
  wr_comm_close(ring, a);
  const wr_pair zero = {0};
  for (int i = 0; i < WR_PAIRS; i++) CHECK(!memcmp(&ring->pair[i], &zero, sizeof zero));
}

/* Readers see a row of one communicator or of the next, never of both. */
static wr_ring *shared;
static uint32_t stop;

static void *read_rows(void *seen) {
  uint64_t *good = seen;
  while (!LOAD(&stop)) {
    wr_comm c;
    if (!read_row(&shared->comm[0], &c, sizeof c)) continue;
    CHECK(c.name[0] == (c.size == 4 ? 'a' : 'b'));
    CHECK(c.name[0] == c.desc[0] && c.desc[0] == c.backend[0]);
    STORE(good, *good + 1);
  }
  return NULL;
}

TEST(comm_row_is_read_whole_while_it_changes_hands) {
  shared = ring_new();
  for (int i = 0; i < WR_COMMS; i++) wr_comm_open(shared, "a", "a", "a", 4, 0, NULL, 0);
  uint64_t good = 0;
  pthread_t reader;
  STORE(&stop, 0);
  pthread_create(&reader, NULL, read_rows, &good);
  for (int i = 0; i < 4000 || !LOAD(&good); i++) { /* a reader that gets no CPU has seen nothing yet */
    const char *name = i & 1 ? "a" : "b";
    wr_comm_close(shared, 0);
    CHECK_EQUAL(wr_comm_open(shared, name, name, name, i & 1 ? 4 : 5, 0, NULL, 0), 0);
    if (i % 64 == 0) sched_yield();
  }
  STORE(&stop, 1);
  pthread_join(reader, NULL);
  CHECK(good > 0);
}
