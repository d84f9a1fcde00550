/* The record ring under fire: nothing torn, every loss counted. */
#define _GNU_SOURCE 1
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "atomics.h"
#include "check.h"

enum { PRODUCERS = 5, PUSHES = 60000, WORDS = 8 };

/* Word 1 says who and which; word 7 is a checksum over all; between them words that depend on both. */
static void fill(wr_record *r, uint64_t producer, uint64_t number) {
  wr_word *w = (wr_word *)(void *)r;
  uint64_t sum = 0;
  w[1] = producer << 32 | number;
  for (int i = 2; i < WORDS - 1; i++) w[i] = wr_mix64(w[1] + (uint64_t)i);
  for (int i = 1; i < WORDS - 1; i++) sum = wr_mix64(sum ^ w[i]);
  w[WORDS - 1] = sum;
}

static int whole(const wr_record *r) {
  const wr_word *w = (const wr_word *)(const void *)r;
  uint64_t sum = 0;
  for (int i = 1; i < WORDS - 1; i++) sum = wr_mix64(sum ^ w[i]);
  return sum == w[WORDS - 1];
}

static wr_ring *ring;

static void *produce(void *number) {
  wr_record r = {0};
  for (uint64_t i = 0; i < PUSHES; i++) {
    fill(&r, (uint64_t)(uintptr_t)number, i);
    wr_push(ring, &r);
    if (i % 512 == 511) sched_yield(); /* on few cores, let them overtake one another */
  }
  return NULL;
}

/* What a reader found. `skipped` are indices that it will never see: overwritten before it came, or dropped. */
typedef struct {
  uint64_t read, skipped, torn, twice, backwards;
  uint32_t stop, started;
  uint8_t seen[PRODUCERS][PUSHES];
} tally;

static void take(tally *t, const wr_record *r, uint64_t *latest) {
  uint64_t who = r->t_issue_ns >> 32, which = r->t_issue_ns & 0xffffffff;
  if (!whole(r) || who >= PRODUCERS || which >= PUSHES) {
    t->torn++;
    return;
  }
  t->read++;
  t->twice += t->seen[who][which]++ != 0;
  t->backwards += which + 1 < latest[who]; /* one producer's records are in its order */
  latest[who] = which + 1;
}

/* Follow the ring to its end. An index not there yet is waited for while its place can still be filled; when
 * the writers are gone it was dropped. */
static void follow(const wr_ring *from, tally *t) {
  uint64_t latest[PRODUCERS] = {0}, next = 0, rounds = 0;
  STORE_RELEASE(&t->started, 1u);
  for (;;) {
    uint32_t last_round = LOAD_ACQUIRE(&t->stop);
    uint64_t head = LOAD_ACQUIRE(&from->header.head);
    while (next < head) {
      wr_record r;
      if (head - next > WR_RECORDS) { /* all these are overwritten: the place belongs to a later index */
        t->skipped += head - WR_RECORDS - next;
        next = head - WR_RECORDS;
      }
      int got = read_record(from, next, &r);
      if (!got && !last_round && head - next < WR_RECORDS / 2) break;
      if (got > 0) take(t, &r, latest);
      else t->skipped++;
      next++;
    }
    if (last_round && next >= head) return;
    if (++rounds % 8 == 0) usleep(1500); /* be lapped now and then */
    sched_yield();
  }
}

static tally *shared_tally(void) {
  void *at = mmap(NULL, sizeof(tally), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  return at == MAP_FAILED ? NULL : at;
}

static void run_producers(void) {
  pthread_t thread[PRODUCERS];
  for (uintptr_t i = 0; i < PRODUCERS; i++) pthread_create(&thread[i], NULL, produce, (void *)i);
  for (int i = 0; i < PRODUCERS; i++) pthread_join(thread[i], NULL);
}

static void check_tally(const tally *t) {
  CHECK_EQUAL(ring->header.head, (uint64_t)PRODUCERS * PUSHES);
  CHECK_EQUAL(t->torn, 0);
  CHECK_EQUAL(t->twice, 0);
  CHECK_EQUAL(t->backwards, 0);
  CHECK(t->skipped >= ring->header.dropped_records);
  uint64_t lost = t->skipped - ring->header.dropped_records; /* pushed = read + lost + dropped */
  CHECK_EQUAL(t->read + lost + ring->header.dropped_records, (uint64_t)PRODUCERS * PUSHES);
  CHECK(t->read >= WR_RECORDS / 2);
  printf("        %llu pushed = %llu read + %llu lost + %llu dropped\n", (unsigned long long)ring->header.head,
         (unsigned long long)t->read, (unsigned long long)lost, (unsigned long long)ring->header.dropped_records);
}

TEST(push_stress_reader_in_another_process) {
  ring = ring_new();
  tally *t = shared_tally();
  REQUIRE(t);
  pid_t reader = fork();
  if (!reader) {
    follow(ring, t);
    _exit(0);
  }
  while (!LOAD_ACQUIRE(&t->started)) sched_yield();
  run_producers();
  STORE_RELEASE(&t->stop, 1u);
  CHECK_EQUAL(exit_of(reader), 0);
  check_tally(t);
  munmap(t, sizeof *t);
}

static void *follow_in_thread(void *t) {
  follow(ring, t);
  return NULL;
}

/* The same in one process, where ThreadSanitizer sees both sides. */
TEST(push_stress_reader_in_a_thread) {
  ring = ring_new();
  tally *t = shared_tally();
  REQUIRE(t);
  pthread_t reader;
  pthread_create(&reader, NULL, follow_in_thread, t);
  while (!LOAD_ACQUIRE(&t->started)) sched_yield();
  run_producers();
  STORE_RELEASE(&t->stop, 1u);
  pthread_join(reader, NULL);
  check_tally(t);
  munmap(t, sizeof *t);
}

/* Without a lap every record is there. */
TEST(push_nothing_is_lost_within_one_lap) {
  ring = ring_new();
  for (uint64_t i = 0; i < WR_RECORDS; i++) {
    wr_record r = {0};
    fill(&r, 0, i);
    wr_push(ring, &r);
  }
  int good = 0;
  for (uint64_t i = 0; i < WR_RECORDS; i++) {
    wr_record r;
    good += read_record(ring, i, &r) == 1 && whole(&r) && (r.t_issue_ns & 0xffffffff) == i;
  }
  CHECK_EQUAL(good, WR_RECORDS);
  CHECK_EQUAL(ring->header.dropped_records, 0);
  wr_record r;
  CHECK_EQUAL(read_record(ring, WR_RECORDS, &r), 0);
  wr_push(ring, &r);
  CHECK_EQUAL(read_record(ring, 0, &r), -1);
}

/* A writer stopped between claim and publication, as the claim leaves it: later laps find the place taken, drop and
 * count; when it goes on its record is whole. */
TEST(push_over_a_writer_stopped_in_the_middle) {
  ring = ring_new();
  wr_record r = {0};
  const uint64_t place = 100;
  for (uint64_t i = 0; i < place; i++) fill(&r, 0, i), wr_push(ring, &r);
  uint64_t ticket = __atomic_fetch_add(&ring->header.head, 1, __ATOMIC_ACQ_REL);
  STORE(&ring->record[place].seq, 2 * ticket + 1);
  wr_record half;
  fill(&half, 0, ticket);
  wr_word *words = (wr_word *)(void *)&ring->record[place];
  const wr_word *from = (const wr_word *)(const void *)&half;
  for (int i = 1; i < 4; i++) STORE(&words[i], from[i]);
  for (uint64_t i = place + 1; i < 3 * WR_RECORDS; i++) fill(&r, 0, i), wr_push(ring, &r);
  CHECK_EQUAL(ring->header.dropped_records, 2); /* two laps came by */
  CHECK_EQUAL(read_record(ring, place + WR_RECORDS, &r), 0);
  CHECK_EQUAL(read_record(ring, place + 2 * WR_RECORDS, &r), 0);
  for (int i = 4; i < WORDS; i++) STORE(&words[i], from[i]);
  STORE_RELEASE(&words[0], 2 * ticket + 2);
  CHECK(read_record(ring, place, &r) == 1 && whole(&r)); /* old, but whole; its index says so */
  for (uint64_t i = 0; i < WR_RECORDS; i++) fill(&r, 0, i), wr_push(ring, &r);
  CHECK_EQUAL(ring->header.dropped_records, 2);
  CHECK(read_record(ring, place + 3 * WR_RECORDS, &r) == 1 && whole(&r));
}

/* The same for real: a process that shares the mapping is stopped at random moments, lapped, and continued. */
TEST(push_lapping_a_process_that_is_stopped_and_continued) {
  ring = ring_new();
  uint32_t *stop = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  REQUIRE(stop != MAP_FAILED);
  uint32_t *pushed = stop + 1;
  pid_t other = fork();
  if (!other) {
    wr_record r = {0};
    for (; !LOAD(stop); ADD(pushed, 1)) fill(&r, 1, LOAD(pushed) % PUSHES), wr_push(ring, &r);
    _exit(0);
  }
  while (!LOAD(pushed)) sched_yield();
  uint64_t mine = 0, torn = 0, in_the_middle = 0;
  for (int round = 0; round < 60; round++) {
    wr_record r = {0};
    int status;
    usleep(200 + (useconds_t)(round * 37 % 900));
    kill(other, SIGSTOP);
    waitpid(other, &status, WUNTRACED);
    for (uint64_t i = 0; i < 2 * WR_RECORDS; i++, mine++) fill(&r, 0, mine % PUSHES), wr_push(ring, &r);
    uint64_t head = LOAD_ACQUIRE(&ring->header.head);
    for (uint64_t at = 0; at < WR_RECORDS; at++) in_the_middle += LOAD(&ring->record[at].seq) & 1;
    kill(other, SIGCONT);
    for (uint64_t index = head - WR_RECORDS; index < head; index++)
      if (read_record(ring, index, &r) == 1 && !whole(&r)) torn++;
  }
  STORE(stop, 1);
  CHECK_EQUAL(exit_of(other), 0);
  CHECK_EQUAL(torn, 0);
  CHECK_EQUAL(ring->header.head, mine + LOAD(pushed));
  uint64_t there = 0, head = ring->header.head;
  for (uint64_t index = head - WR_RECORDS; index < head; index++) {
    wr_record r;
    int got = read_record(ring, index, &r);
    there += got == 1;
    if (got == 1 && !whole(&r)) torn++;
  }
  CHECK_EQUAL(torn, 0);
  CHECK(there + ring->header.dropped_records >= WR_RECORDS); /* what is missing was counted */
  for (uint64_t at = 0; at < WR_RECORDS; at++) CHECK(!(ring->record[at].seq & 1));
  printf("        stopped in the middle of a push in %llu of 60 rounds, %llu dropped\n",
         (unsigned long long)in_the_middle, (unsigned long long)ring->header.dropped_records);
  munmap(stop, 4096);
}
