/* A key-value drive from C: every function, its statuses, and what is there when the drive is opened again. */
#include "openftl_kv.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static openftl_error error;

#define EXPECT(status, expected)                                                                          \
    do {                                                                                                  \
        int got = (status);                                                                               \
        if (got != (expected)) {                                                                          \
            fprintf(stderr, "line %d: status %d, not %d: %s\n", __LINE__, got, (expected), error.message); \
            exit(1);                                                                                      \
        }                                                                                                 \
    } while (0)

#define CHECK(condition)                                               \
    do {                                                               \
        if (!(condition)) {                                            \
            fprintf(stderr, "line %d: not " #condition "\n", __LINE__); \
            exit(1);                                                   \
        }                                                              \
    } while (0)

struct seen {
    openftl_kv *kv;
    int count;
    int stop_at;
    char keys[8][OPENFTL_KV_KEY_MAX + 1];
};

static int see(void *context, const void *key, size_t key_bytes) {
    struct seen *seen = context;
    size_t value_bytes;
    memcpy(seen->keys[seen->count % 8], key, key_bytes);
    seen->keys[seen->count % 8][key_bytes] = 0;
    /* The drive may be asked meanwhile. */
    EXPECT(openftl_kv_exist(seen->kv, key, key_bytes, &value_bytes, &error), OPENFTL_OK);
    return ++seen->count == seen->stop_at;
}

int main(int argc, char **argv) {
    openftl_kv *kv;
    size_t bytes;
    char buffer[64];
    static char large[200000], again[200000];
    CHECK(argc == 2);
    EXPECT(openftl_kv_open("nothing.oftl", &kv, &error), OPENFTL_NOT_FOUND);
    CHECK(strstr(error.message, "nothing.oftl") != NULL);
    EXPECT(openftl_kv_open(argv[1], &kv, &error), OPENFTL_OK);

    EXPECT(openftl_kv_store(kv, "hello", 5, "world", 5, 0, &error), OPENFTL_OK);
    EXPECT(openftl_kv_store(kv, "hello", 5, "again", 5, OPENFTL_KV_IF_MISSING, &error), OPENFTL_EXISTS);
    EXPECT(openftl_kv_store(kv, "other", 5, "x", 1, OPENFTL_KV_IF_EXISTS, &error), OPENFTL_NOT_FOUND);
    EXPECT(openftl_kv_store(kv, "other", 5, NULL, 0, OPENFTL_KV_IF_MISSING, &error), OPENFTL_OK);
    EXPECT(openftl_kv_store(kv, "hello\0", 6, "zero", 4, OPENFTL_KV_DURABLE, &error), OPENFTL_OK);
    EXPECT(openftl_kv_store(kv, "", 0, "x", 1, 0, &error), OPENFTL_INVALID);
    EXPECT(openftl_kv_store(kv, "seventeen letters", 17, "x", 1, 0, &error), OPENFTL_INVALID);
    EXPECT(openftl_kv_store(kv, "key", 3, "x", 1, 3, &error), OPENFTL_INVALID);
    EXPECT(openftl_kv_store(kv, "key", 3, "x", 1, 8, &error), OPENFTL_INVALID);
    EXPECT(openftl_kv_store(kv, NULL, 3, "x", 1, 0, &error), OPENFTL_INVALID);
    EXPECT(openftl_kv_store(kv, "key", 3, NULL, 1, 0, &error), OPENFTL_INVALID);
    EXPECT(openftl_kv_store(NULL, "key", 3, "x", 1, 0, &error), OPENFTL_INVALID);
    EXPECT(openftl_kv_store(kv, "key", 3, large, 1 << 30, 0, &error), OPENFTL_TOO_LARGE);

    EXPECT(openftl_kv_retrieve(kv, "hello", 5, buffer, sizeof buffer, &bytes, &error), OPENFTL_OK);
    CHECK(bytes == 5 && memcmp(buffer, "world", 5) == 0);
    EXPECT(openftl_kv_retrieve(kv, "hello\0", 6, buffer, 2, &bytes, &error), OPENFTL_OK);
    CHECK(bytes == 4 && memcmp(buffer, "zerld", 5) == 0);
    EXPECT(openftl_kv_retrieve(kv, "other", 5, NULL, 0, &bytes, &error), OPENFTL_OK);
    CHECK(bytes == 0);
    EXPECT(openftl_kv_retrieve(kv, "nokey", 5, buffer, sizeof buffer, &bytes, &error), OPENFTL_NOT_FOUND);

    for (size_t at = 0; at < sizeof large; at++) large[at] = (char)(at * 31 + at / 256);
    EXPECT(openftl_kv_store(kv, "large", 5, large, sizeof large, 0, &error), OPENFTL_OK);
    EXPECT(openftl_kv_retrieve(kv, "large", 5, again, sizeof again, &bytes, &error), OPENFTL_OK);
    CHECK(bytes == sizeof large && memcmp(large, again, sizeof large) == 0);

    struct seen seen = {kv, 0, 0, {{0}}};
    EXPECT(openftl_kv_list(kv, NULL, 0, see, &seen, &error), OPENFTL_OK);
    CHECK(seen.count == 4 && strcmp(seen.keys[0], "hello") == 0 && strcmp(seen.keys[3], "other") == 0);
    struct seen from = {kv, 0, 1, {{0}}};
    EXPECT(openftl_kv_list(kv, "i", 1, see, &from, &error), OPENFTL_OK);
    CHECK(from.count == 1 && strcmp(from.keys[0], "large") == 0);
    EXPECT(openftl_kv_list(kv, NULL, 0, NULL, NULL, &error), OPENFTL_INVALID);

    EXPECT(openftl_kv_exist(kv, "hello", 5, NULL, &error), OPENFTL_OK);
    EXPECT(openftl_kv_delete(kv, "hello", 5, 0, &error), OPENFTL_OK);
    EXPECT(openftl_kv_delete(kv, "hello", 5, OPENFTL_KV_DURABLE, &error), OPENFTL_NOT_FOUND);
    EXPECT(openftl_kv_exist(kv, "hello", 5, &bytes, &error), OPENFTL_NOT_FOUND);
    EXPECT(openftl_kv_flush(kv, &error), OPENFTL_OK);
    EXPECT(openftl_kv_close(kv, &error), OPENFTL_OK);

    EXPECT(openftl_kv_open(argv[1], &kv, &error), OPENFTL_OK);
    EXPECT(openftl_kv_exist(kv, "hello", 5, &bytes, &error), OPENFTL_NOT_FOUND);
    EXPECT(openftl_kv_retrieve(kv, "large", 5, again, sizeof again, &bytes, &error), OPENFTL_OK);
    CHECK(bytes == sizeof large && memcmp(large, again, sizeof large) == 0);
    EXPECT(openftl_kv_close(kv, &error), OPENFTL_OK);
    EXPECT(openftl_kv_close(NULL, &error), OPENFTL_INVALID);
    puts("sound");
    return 0;
}
