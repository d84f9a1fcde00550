/* Lines with words: tables and rows end where the caller says. Which lines are found is held against plain Python in
 * tests/unit/columns/test_words.py. */
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "whichrank/words.h"

static uint8_t shift[WR_BYTE_PAIRS], first[WR_BYTE_PAIRS], next[WR_MOST_WORDS];

static wr_words prepared(const char *text, const uint32_t *end, const uint32_t *after, size_t count) {
  wr_words words = {count, 0, (const uint8_t *)text, end, after, shift, first, next};
  CHECK_EQUAL(wr_prepare_words(&words), 0);
  return words;
}

TEST(words_lines_are_found_in_a_text_that_ends_at_once) {
  uint32_t end[3] = {3, 8, 10}, after[3] = {0, 7, 1};
  wr_words words = prepared("onethree]x", end, after, 3);
  const char *lines = "a one\none three\n]x\n1]x\nthre";
  size_t size = strlen(lines), at = 0;
  uint8_t *text = malloc(size); /* without the zero, so that a sanitizer sees what is read behind it */
  memcpy(text, lines, size);
  int64_t start[4], stop[4];
  uint32_t more[4];
  CHECK_EQUAL(wr_lines_with(&words, text, size, &at, 4, start, stop, more), 3);
  CHECK(start[0] == 0 && stop[0] == 5 && more[0] == 0);
  CHECK(start[1] == 6 && stop[1] == 15 && more[1] == 7);
  CHECK(start[2] == 19 && stop[2] == 22 && more[2] == 1);
  CHECK_EQUAL(at, size);
  free(text);
}

TEST(words_search_goes_on_where_rows_were_full) {
  uint32_t end[1] = {2}, after[1] = {0};
  wr_words words = prepared("ab", end, after, 1);
  const uint8_t text[] = "ab\nab\nab";
  size_t at = 0;
  int64_t start[2], stop[2];
  uint32_t more[2];
  CHECK_EQUAL(wr_lines_with(&words, text, 8, &at, 2, start, stop, more), 2);
  CHECK_EQUAL(wr_lines_with(&words, text, 8, &at, 2, start, stop, more), 1);
  CHECK(start[0] == 6 && stop[0] == 8);
  CHECK_EQUAL(wr_lines_with(&words, text, 8, &at, 2, start, stop, more), 0);
}

TEST(words_that_are_too_short_are_refused) {
  uint32_t end[2] = {2, 3}, after[2] = {0, 0};
  wr_words words = {2, 0, (const uint8_t *)"abc", end, after, shift, first, next};
  CHECK_EQUAL(wr_prepare_words(&words), -1);
  words.count = 0;
  CHECK_EQUAL(wr_prepare_words(&words), -1);
}
