/* Lines of a text in which one of some words stands, all words in one pass: logs have gigabytes, and few lines of interest.
 *
 * Nothing is allocated: tables and rows are the caller's. Every place in a text is held against its length.
 */
#ifndef WHICHRANK_WORDS_H
#define WHICHRANK_WORDS_H

#include <stddef.h>
#include <stdint.h>

#include "whichrank/ring.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { WR_MOST_WORDS = 254, WR_BYTE_PAIRS = 1 << 16 };

/* Words, and by each pair of bytes how far a search may go on, and the first word that may end its window there. */
typedef struct {
  size_t count;           /* at most WR_MOST_WORDS */
  size_t window;          /* out: bytes of the shortest word */
  const uint8_t *text;    /* all words, one behind the other */
  const uint32_t *end;    /* by word: where it ends in that */
  const uint32_t *after;  /* by word: how many lines after its own belong to it */
  uint8_t *shift, *first; /* by pair of bytes, (WR_BYTE_PAIRS,) each */
  uint8_t *next;          /* by word */
} wr_words;

/* Fill the tables. 0; -1 if a word is shorter than two bytes or there are too many. */
WR_API int wr_prepare_words(wr_words *words);

/* Lines with a word, in their order. `start`, `end`: where each lies, the end without its newline, `size` where none
 * follows. `after`: the most lines that belong to a word of it. From `*at` on, which is where the next call goes on; at
 * most `most` lines. Returns how many. A word that begins with a bracket closes a number or a list of them: digits, commas
 * and blanks may stand before it, nothing else. */
WR_API size_t wr_lines_with(const wr_words *words, const uint8_t *text, size_t size, size_t *at, size_t most, int64_t *start,
                            int64_t *end, uint32_t *after);

#ifdef __cplusplus
}
#endif
#endif
