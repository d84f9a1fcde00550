/* Loops of the analyzer over the operations of a batch, which NumPy would go through some sixty times.
 *
 * Nothing is kept here and nothing allocated: tables and columns are the caller's. Every number that came from a batch
 * and is used as an index is held against the length of what it goes into; an operation for which it does not fit is
 * left out.
 */
#ifndef WHICHRANK_COLUMNS_H
#define WHICHRANK_COLUMNS_H

#include <stddef.h>
#include <stdint.h>

#include "whichrank/ring.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Mix `b` into the hash `a`, as `mix` of `model/signature.py` does. */
static inline uint64_t wr_mix(uint64_t a, uint64_t b) {
  uint64_t h = (a ^ b) * 0x9E3779B97F4A7C15u;
  return h ^ h >> 29;
}

/* ---- records ------------------------------------------------------------------------------------------------------ */

/* A completed operation as agents send it: RECORD_REPORTED of `model/telemetry.py`. */
typedef struct {
  int32_t rank;
  uint32_t pad;
  uint64_t comm_id;
  wr_record row;
} wr_reported;

/* What of an operation is part of its signature, by its kind. */
enum wr_part { WR_COUNT = 1, WR_MAY_BE_UNEVEN = 2, WR_REDUCE_OP = 4, WR_PEER = 8 };
enum { WR_FLAG_FREE_SIZES = 1u << 6 }; /* of recordings: its sizes may differ between members */

/* The same operations as columns, all of room for `count`. */
typedef struct {
  size_t count;
  int64_t *rank;
  uint64_t *comm_id, *t_issue_ns, *t_end_ns, *elements, *sign;
  uint32_t *counter, *ordinal, *wait_us;
  int32_t *peer;
  uint16_t *comm_slot;
  uint8_t *kind, *flags, *status;
  size_t others;            /* out: how many are of no rank below `ranks`, or no operations */
} wr_columns;

/* Take rows apart. `parts`: for each of the 256 kinds, what is part of its signature. */
WR_API void wr_take_apart(const wr_reported *rows, const uint8_t *parts, size_t ranks, wr_columns *columns);

/* The signatures of operations of which only these fields are known, (count,) each. */
WR_API void wr_signatures(size_t count, const uint8_t *parts, const uint8_t *kind, const uint8_t *dtype,
                          const uint8_t *reduce_op, const int32_t *peer, const uint8_t *flags, const uint64_t *elements,
                          uint64_t *sign);

/* Which communicator is in which slot of the ring of which rank. */
typedef struct {
  size_t ranks, slots, members, comms;
  const int32_t *in_slot;   /* by rank and slot: the rank as a member; -1 none */
  const int64_t *comm_of;   /* by member: its communicator */
  const int64_t *member_at; /* by communicator: its first member */
  const uint64_t *id;       /* by communicator */
} wr_slots;

/* Find the communicator of each operation, and its rank's group rank there; -1 for both where the slot has another one by
 * now. How many are not found. */
WR_API size_t wr_find_comms(const wr_slots *table, size_t count, const int64_t *rank, const uint16_t *slot,
                            const uint64_t *id, int64_t *comm, int64_t *place);

/* Runs of operations of one rank: where each begins, and its latest times. Returns how many there are. `longs`: places of
 * operations that took `long_ns` or longer. Room for `count` in all. */
typedef struct {
  size_t count;
  const int64_t *rank;
  const int64_t *issue_ns, *end_ns;
  int64_t long_ns;
  int64_t *begin, *last_issue_ns, *last_end_ns, *longs;
  size_t runs, long_ones;   /* out */
} wr_runs;

WR_API void wr_find_runs(wr_runs *runs);

/* ---- counts ------------------------------------------------------------------------------------------------------- */

/* Count the waits of each communicator, in `bins` of which each goes to the root of two times as far as the one before.
 * `counts`: (comms, bins); `total`: (comms,). */
WR_API void wr_count_waits(size_t count, const int64_t *comm, const uint32_t *wait_us, size_t comms, size_t bins,
                           float *counts, double *total);
/* Count the operations of each kind. `counts`: (comms, kinds). */
WR_API void wr_count_kinds(size_t count, const int64_t *comm, const uint8_t *kind, size_t comms, size_t kinds,
                           uint32_t *counts);

/* ---- periods ------------------------------------------------------------------------------------------------------ */

/* What ranks that are settled always do (`store/settled.py`): five numbers of each, and all their periods. */
typedef struct {
  size_t ranks, tokens;
  const int64_t *at;       /* where its period begins; -1: it is not in the table */
  const int64_t *length;   /* of the period */
  int64_t *place;          /* in it, of what comes next */
  int64_t *next;           /* ordinal of what comes next */
  int64_t *untold;         /* operations since its sequence was told */
  const uint32_t *periods; /* tokens */
} wr_periods;

/* Operations that were issued, by rank and ordinal, and what becomes of them. */
typedef struct {
  size_t count;
  const int64_t *rank, *ordinal;
  const uint32_t *tokens;
  int64_t tell_after;      /* operations of a rank after which its sequence is to be told */
  uint8_t *dealt_with;     /* out, `count`: it is as the period says, or was known */
  int64_t *leaving;        /* out, room for `count`: ranks in the table that have issued something else */
  int64_t *to_tell;        /* out, room for `count`: ranks whose sequences are to be told */
  size_t leavings, to_tells;
} wr_issued;

/* Hold operations against periods. 0, or EINVAL if they are not by rank and ordinal, each once: nothing is done then. */
WR_API int wr_hold_periods(const wr_periods *table, wr_issued *issued);

/* ---- rounds ------------------------------------------------------------------------------------------------------- */

/* The latest completed rounds of every communicator (`store/rounds.py`). A slot has a round; counter and signature of its
 * first member are one number, the counter above. */
typedef struct {
  size_t comms, slots, members, ranks, seen_size; /* seen_size: a power of two */
  const int64_t *size;      /* by communicator: members */
  const uint32_t *last;     /* by communicator: rounds kept less one, ones in binary */
  const int64_t *slot_at;   /* by communicator: its first slot */
  const int64_t *member_at; /* by communicator: its first member */
  uint32_t *lowest;         /* by communicator: scratch */
  const double *offset_s;   /* by rank: from its host's clock to the analyzer's */
  uint64_t *first;          /* by slot: what its first member had issued */
  uint32_t *first_ordinal;  /* by slot: the number of that among all of its rank */
  double *first_end_s;      /* by slot: when it was complete, on the analyzer's clock; 0 not known */
  int32_t *behind;          /* by member: by how much its ordinals are higher than those of the first */
  uint32_t *behind_since;   /* by member: the round in which it came to be so */
  uint32_t *seen;           /* signatures, looked up by their last bits */
  uint32_t steady;          /* rounds in which a member was as far from the others as before, for a change to matter */
} wr_rounds;

/* The operations completed last, as they came (`store/done_lately.py`): columns that are written round. */
typedef struct {
  size_t size, next;        /* next: where the next one is written, changed */
  int32_t *comm, *member;
  uint32_t *counter, *sign, *ordinal;
} wr_lately;

/* Completed operations, and what is to be looked at more closely. */
typedef struct {
  size_t count;
  const int64_t *rank, *comm, *place; /* place: the group rank; -1 not known: it is left out */
  const uint32_t *counter, *ordinal;
  const uint64_t *sign;     /* the upper half is compared */
  const uint64_t *end_ns;
  const uint8_t *kind, *status; /* only collectives that went well are taken */
  const int64_t *order;     /* their places in the order of `lap`; NULL: as they come */
  uint32_t *lap;            /* out, `count`: no two rounds of a lap share a slot */
  int64_t *unseen;          /* out, room for `count`: places of those whose signature may be new */
  int64_t *differing;       /* out, room for `count`: places of those that are not what the first had issued */
  int64_t *moved;           /* scratch, room for `count` */
  int64_t *apart;           /* out, room for `count`: communicators of which a member has moved after it was steady */
  size_t taken, unseens, differings, moves, aparts; /* out: how many; moves: scratch */
} wr_completed;

/* Hold operations against the first of their rounds. 0, or EDOM if they are in several laps: then only `lap` is set, and
 * they are to be given once more with their order. */
WR_API int wr_hold_rounds(const wr_rounds *table, wr_lately *lately, wr_completed *done);

/* ---- iterations --------------------------------------------------------------------------------------------------- */

/* Iterations of ranks (`detect/own_times.py`), by rank and number: those of a rank follow each other. */
typedef struct {
  size_t ranks, iterations;
  const int64_t *first;     /* by rank, and one more at the end: its first iteration */
  const int64_t *begin;     /* by iteration: how many operations its rank had issued when it began */
  const int64_t *end;       /* by iteration: the same when it was over */
} wr_iterations;

/* In which iteration each operation was issued, by its number among all of its rank; -1 none. */
WR_API void wr_find_iterations(const wr_iterations *table, size_t count, const int64_t *rank, const uint32_t *ordinal,
                               int64_t *of);

/* Operations, in which iteration each is, and what those of each iteration add up to, modulo 2^64. */
typedef struct {
  size_t count, iterations, comms;
  const int64_t *iteration; /* of each; -1 none: it is left out */
  const int64_t *rank, *comm;
  const int32_t *peer;      /* the other end of a message, or the root; -1 not known, or none */
  const uint16_t *stage;    /* of a message: the rank's own place in the communicator, from 1 */
  const uint16_t *offset;   /* of a message: from there to the peer's, counted round; 0 not known */
  const uint8_t *kind;
  const uint64_t *sort;     /* by communicator: equal for those of the same sort */
  uint64_t *messages;       /* out, `iterations`, as the others: how many there are, */
  uint64_t *pattern;        /* all operations, by sort of communicator, kind and stage, */
  uint64_t *turned;         /* the same, but messages by their offset where that is known, */
  uint64_t *roots;          /* collectives of which the rank is the root, */
  uint64_t *talks;          /* messages of which the other end is known, by that */
  size_t addressed;         /* out: how many messages these are in all */
} wr_sums;

/* `messages` and those behind it are added to. */
WR_API void wr_sum_iterations(wr_sums *sums);

#ifdef __cplusplus
}
#endif
#endif
