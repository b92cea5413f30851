/* What openftl.h says of stores of pages. pages URI [second] */
#include "openftl.h"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static openftl_error error;

#define OK(call)                                                                                       \
    do {                                                                                               \
        openftl_status status_ = (call);                                                               \
        if (status_ != OPENFTL_OK) {                                                                   \
            fprintf(stderr, "%s:%d: %s: %d, %s\n", __FILE__, __LINE__, #call, status_, error.message); \
            exit(1);                                                                                   \
        }                                                                                              \
    } while (0)
#define FAILS(expected, words, call)                                                                          \
    do {                                                                                                      \
        openftl_status status_ = (call);                                                                      \
        if (status_ != (expected) || !strstr(error.message, words)) {                                         \
            fprintf(stderr, "%s:%d: %s: %d, \"%s\"\n", __FILE__, __LINE__, #call, status_, error.message);    \
            exit(1);                                                                                          \
        }                                                                                                     \
    } while (0)
#define IS(what)                                                            \
    do {                                                                    \
        if (!(what)) {                                                      \
            fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #what); \
            exit(1);                                                        \
        }                                                                   \
    } while (0)

static openftl_store *store;

static void put(openftl_session *session, uint64_t wsn, uint64_t lpid, size_t bytes, int fill, int durable) {
    char *page = malloc(bytes);
    openftl_batch *batch;
    memset(page, fill, bytes);
    OK(openftl_batch_new(session, wsn, &batch, &error));
    OK(openftl_batch_put(batch, lpid, page, bytes, NULL, &error));
    memset(page, 0, bytes);
    OK(openftl_batch_commit(batch, durable, &error));
    free(page);
}

static int collect(void *context, uint64_t lpid, uint32_t bytes) {
    uint64_t *sums = context;
    sums[0] += 1, sums[1] += lpid, sums[2] += bytes;
    return sums[0] == sums[3];
}

static void *work(void *argument) {
    uint64_t thread = (uint64_t)(uintptr_t)argument, last, wsn;
    uint8_t id[16] = {0x77, (uint8_t)thread};
    openftl_session *session;
    OK(openftl_session_open(store, id, &session, &last, &error));
    IS(last == 0);
    for (wsn = 1; wsn <= 40; wsn++) {
        char page[3000];
        size_t got;
        openftl_page facts;
        put(session, wsn, thread << 32 | wsn % 5, 100 + 17 * wsn, (int)wsn, wsn % 4 == 0);
        OK(openftl_page_read(store, thread << 32 | wsn % 5, 0, page, sizeof page, &got, &facts, NULL));
        IS(got == 100 + 17 * wsn && facts.bytes == got && page[0] == (char)wsn && page[got - 1] == (char)wsn);
    }
    OK(openftl_session_close(session, 1, &error));
    return NULL;
}

int main(int count, char **arguments) {
    const char *uri = arguments[1];
    const uint8_t id[16] = "a session of C!";
    openftl_session *session;
    openftl_batch *batch;
    openftl_page facts;
    uint64_t last, version, free_bytes, all_bytes;
    char buffer[8192];
    size_t got;

    IS(openftl_abi_version() == OPENFTL_ABI_VERSION);
    FAILS(OPENFTL_INVALID, "names no drive", openftl_store_open("x.toml", &store, &error));
    FAILS(OPENFTL_NOT_FOUND, "nowhere", openftl_store_open("openftl://nowhere.toml", &store, &error));
    FAILS(OPENFTL_INVALID, "null pointer", openftl_store_open(NULL, &store, &error));
    OK(openftl_store_open(uri, &store, &error));
    OK(openftl_session_open(store, id, &session, &last, &error));
    if (count > 2) {
        /* The second process: what was durable is there. */
        IS(last == 3);
        OK(openftl_page_read(store, 7, 4999, buffer, sizeof buffer, &got, &facts, &error));
        IS(got == 1 && facts.bytes == 5000 && buffer[0] == 'a');
        FAILS(OPENFTL_NOT_FOUND, "no page 8", openftl_page_stat(store, 8, &facts, &error));
        put(session, 4, 7, 1, 'z', 1);
        OK(openftl_session_close(session, 1, &error));
        OK(openftl_store_close(store, &error));
        puts("second process ok");
        return 0;
    }
    IS(last == 0);
    FAILS(OPENFTL_BUSY, "is open", openftl_session_open(store, id, &session, &last, &error));
    put(session, 1, 7, 5000, 'a', 1);
    OK(openftl_page_read(store, 7, 10, buffer, sizeof buffer, &got, &facts, &error));
    IS(got == 4990 && facts.bytes == 5000 && buffer[0] == 'a' && buffer[4989] == 'a');
    OK(openftl_page_read(store, 7, 10, buffer, 100, &got, NULL, &error));
    IS(got == 100);
    FAILS(OPENFTL_INVALID, "none at 5000", openftl_page_read(store, 7, 5000, buffer, 1, &got, NULL, &error));
    FAILS(OPENFTL_NOT_FOUND, "no page 9", openftl_page_read(store, 9, 0, buffer, 1, &got, NULL, &error));
    FAILS(OPENFTL_INVALID, "the buffer is a null", openftl_page_read(store, 7, 0, NULL, 1, &got, NULL, &error));

    /* Repeated: the same is fine, another batch is not. */
    put(session, 1, 7, 5000, 'a', 1);
    OK(openftl_batch_new(session, 1, &batch, &error));
    OK(openftl_batch_put(batch, 7, "x", 1, NULL, &error));
    FAILS(OPENFTL_INVALID, "other pages", openftl_batch_commit(batch, 1, &error));

    /* Conditions. */
    OK(openftl_page_stat(store, 7, &facts, &error));
    version = facts.version + 1000;
    OK(openftl_batch_new(session, 2, &batch, &error));
    OK(openftl_batch_delete(batch, 7, &version, &error));
    FAILS(OPENFTL_CONFLICT, "page 7", openftl_batch_commit(batch, 1, &error));
    version = 0;
    OK(openftl_batch_new(session, 2, &batch, &error));
    OK(openftl_batch_put(batch, 8, "new", 3, &version, &error));
    OK(openftl_batch_commit(batch, 0, &error));

    /* Wrong sizes, and what is given up. */
    OK(openftl_batch_new(session, 3, &batch, &error));
    FAILS(OPENFTL_INVALID, "0 bytes", openftl_batch_put(batch, 1, "", 0, NULL, &error));
    FAILS(OPENFTL_INVALID, "bytes", openftl_batch_put(batch, 1, buffer, (size_t)2 << 20, NULL, &error));
    OK(openftl_batch_put(batch, 1, "gone", 4, NULL, &error));
    OK(openftl_batch_abort(batch, &error));
    FAILS(OPENFTL_NOT_FOUND, "no page 1", openftl_page_stat(store, 1, &facts, &error));
    FAILS(OPENFTL_INVALID, "more than 16 ahead", (openftl_batch_new(session, 90, &batch, &error), openftl_batch_put(batch, 1, "x", 1, NULL, &error)));
    OK(openftl_batch_abort(batch, &error));
    FAILS(OPENFTL_INVALID, "null pointer", openftl_batch_commit(NULL, 1, &error));

    OK(openftl_batch_new(session, 3, &batch, &error));
    OK(openftl_batch_delete(batch, 8, NULL, &error));
    OK(openftl_batch_commit(batch, 0, &error));
    OK(openftl_store_sync(store, &error));
    OK(openftl_store_space(store, &free_bytes, &all_bytes, &error));
    IS(free_bytes < all_bytes && all_bytes > 1000000);

    {
        pthread_t threads[4];
        uint64_t thread, sums[4] = {0, 0, 0, 0};
        for (thread = 1; thread <= 4; thread++)
            IS(!pthread_create(&threads[thread - 1], NULL, work, (void *)(uintptr_t)thread));
        for (thread = 0; thread < 4; thread++) pthread_join(threads[thread], NULL);
        OK(openftl_page_list(store, 8, collect, sums, &error));
        IS(sums[0] == 20);
        memset(sums, 0, sizeof sums);
        sums[3] = 1;
        OK(openftl_page_list(store, 0, collect, sums, &error));
        IS(sums[0] == 1 && sums[1] == 7 && sums[2] == 5000);
    }
    {
        /* The same store again, and a close too early. */
        openftl_store *again;
        OK(openftl_store_open(uri, &again, &error));
        OK(openftl_page_stat(again, 7, &facts, &error));
        OK(openftl_store_close(again, &error));
        OK(openftl_page_stat(store, 7, &facts, &error));
    }
    OK(openftl_session_close(session, 0, &error));
    OK(openftl_store_close(store, &error));
    puts("first process ok");
    return 0;
}
