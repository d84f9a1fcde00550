#define _GNU_SOURCE /* memrchr */
#include <string.h>

#include "whichrank/words.h"

/* The search of Wu and Manber (A fast algorithm for multi-pattern searching, 1994), with pairs of bytes: a window as long as
 * the shortest word moves by as much as the pair at its end allows. */

static size_t pair_at(const uint8_t *last) { return (size_t)last[-1] << 8 | last[0]; }

static size_t begin_of(const wr_words *words, size_t word) { return word ? words->end[word - 1] : 0; }

int wr_prepare_words(wr_words *words) {
  if (!words->count || words->count > WR_MOST_WORDS) return -1;
  words->window = SIZE_MAX;
  for (size_t i = 0; i < words->count; i++) {
    size_t begin = begin_of(words, i);
    if (words->end[i] < begin + 2) return -1;
    if (words->end[i] - begin < words->window) words->window = words->end[i] - begin;
  }
  if (words->window > UINT8_MAX) words->window = UINT8_MAX;
  memset(words->shift, (int)words->window - 1, WR_BYTE_PAIRS);
  memset(words->first, 0, WR_BYTE_PAIRS);
  for (size_t i = 0; i < words->count; i++) {
    const uint8_t *word = words->text + begin_of(words, i);
    for (size_t last = 1; last < words->window; last++) {
      uint8_t *shift = words->shift + pair_at(word + last);
      if (words->window - 1 - last < *shift) *shift = (uint8_t)(words->window - 1 - last);
    }
    uint8_t *first = words->first + pair_at(word + words->window - 1);
    words->next[i] = *first;
    *first = (uint8_t)(i + 1); /* 0: no word */
  }
  return 0;
}

static int may_close(uint8_t before) { return (before >= '0' && before <= '9') || before == ',' || before == ' '; }

static int stands_at(const wr_words *words, size_t word, const uint8_t *text, size_t size, size_t at) {
  size_t begin = begin_of(words, word), length = words->end[word] - begin;
  if (length > size - at || memcmp(text + at, words->text + begin, length)) return 0;
  return text[at] != ']' || (at && may_close(text[at - 1]));
}

size_t wr_lines_with(const wr_words *words, const uint8_t *text, size_t size, size_t *at, size_t most, int64_t *start,
                     int64_t *end, uint32_t *after) {
  size_t found = 0, stop = 0; /* of the latest line */
  size_t last = *at + words->window - 1;
  while (last < size) {
    size_t pair = pair_at(text + last);
    if (words->shift[pair]) {
      last += words->shift[pair];
      continue;
    }
    size_t begin = last + 1 - words->window;
    for (size_t word = words->first[pair]; word; word = words->next[word - 1]) {
      if (!stands_at(words, word - 1, text, size, begin)) continue;
      if (!found || begin >= stop) {
        if (found == most) {
          *at = begin;
          return found;
        }
        const uint8_t *before = memrchr(text, '\n', begin), *behind = memchr(text + begin, '\n', size - begin);
        stop = behind ? (size_t)(behind - text) : size;
        start[found] = before ? before - text + 1 : 0, end[found] = (int64_t)stop, after[found++] = 0;
      }
      if (words->after[word - 1] > after[found - 1]) after[found - 1] = words->after[word - 1];
    }
    last++;
  }
  *at = size;
  return found;
}
