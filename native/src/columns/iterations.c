#include "whichrank/columns.h"

enum { FROM_HERE = 1 << 15 }; /* beside the places of peers: it is an offset from the rank's own place */

static int has(const wr_iterations *t, int64_t iteration, int64_t ordinal) {
  return t->begin[iteration] < ordinal && ordinal <= t->end[iteration];
}

/* The last one from `first` to `last` that began before this operation; `first` less one if there is none. */
static int64_t latest_before(const wr_iterations *t, int64_t first, int64_t last, int64_t ordinal) {
  while (first <= last) {
    int64_t middle = first + (last - first) / 2;
    if (t->begin[middle] < ordinal)
      first = middle + 1;
    else
      last = middle - 1;
  }
  return last;
}

void wr_find_iterations(const wr_iterations *t, size_t count, const int64_t *rank, const uint32_t *ordinal, int64_t *of) {
  int64_t at = -1, first = 0, last = -1;
  for (size_t i = 0; i < count; i++) {
    if (i == 0 || rank[i] != rank[i - 1]) {
      int is_there = rank[i] >= 0 && (size_t)rank[i] < t->ranks;
      first = is_there ? t->first[rank[i]] : 0;
      last = is_there ? t->first[rank[i] + 1] - 1 : -1;
      if (first < 0 || last >= (int64_t)t->iterations) last = first - 1;
      at = -1;
    }
    if (at < 0 || !has(t, at, ordinal[i])) {
      at = latest_before(t, first, last, ordinal[i]);
      if (at < first || !has(t, at, ordinal[i])) at = -1;
    }
    of[i] = at;
  }
}

void wr_sum_iterations(wr_sums *s) {
  s->addressed = 0;
  for (size_t i = 0; i < s->count; i++) {
    int64_t of = s->iteration[i], comm = s->comm[i];
    if (of < 0 || (size_t)of >= s->iterations || comm < 0 || (size_t)comm >= s->comms) continue;
    uint64_t sort = s->sort[comm], kind = (uint64_t)s->kind[i] << 16;
    uint64_t what = wr_mix(sort, kind | s->stage[i]);
    int is_message = s->kind[i] >= WR_SEND;
    s->pattern[of] += what;
    s->turned[of] += is_message && s->offset[i] ? wr_mix(sort, kind | FROM_HERE | s->offset[i]) : what;
    if (!is_message) {
      if (s->peer[i] == s->rank[i]) s->roots[of] += what;
      continue;
    }
    s->messages[of]++;
    if (s->peer[i] < 0) continue;
    s->talks[of] += wr_mix((uint64_t)s->peer[i], 1);
    s->addressed++;
  }
}
