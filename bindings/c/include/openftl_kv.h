/*
 * OpenFTL: a key-value drive from C.
 *
 * A key has 1 to 16 bytes, a value 0 bytes and more; both may hold any bytes. A drive is opened once at a time, by one process, and
 * used by any number of its threads: requests take turns.
 *
 * What is stored is there when the function returns, and durable when it was stored with OPENFTL_KV_DURABLE, when openftl_kv_flush
 * has returned, or when the drive was made with durable stores. After a power cut or the death of the process the first of all
 * changes are there, in their order, each as a whole.
 *
 * Every function returns an openftl_status. In terms of NVMe KV:
 *
 *   OPENFTL_NOT_FOUND   key does not exist
 *   OPENFTL_EXISTS      key exists
 *   OPENFTL_NO_SPACE    capacity exceeded
 *   OPENFTL_TOO_LARGE   invalid value size
 *   OPENFTL_INVALID     invalid key size, or another wrong argument
 *   OPENFTL_IO_ERROR    unrecovered error
 */
#ifndef OPENFTL_KV_H
#define OPENFTL_KV_H

#include "openftl.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Bytes of a key, at most. */
#define OPENFTL_KV_KEY_MAX 16

/* Of a Store: only if there is such a key, only if there is none. */
#define OPENFTL_KV_IF_EXISTS 1
#define OPENFTL_KV_IF_MISSING 2
/* Of a Store and a Delete: it is durable when the function returns. */
#define OPENFTL_KV_DURABLE 4

typedef struct openftl_kv openftl_kv;

/* Opens the drive that is kept in a file made by `openftl create`, or that a drive description (TOML) describes; "openftl://" may stand
 * before the path. */
openftl_status openftl_kv_open(const char *path, openftl_kv **kv, openftl_error *error);

/* Ends the use of a drive. All that was stored is durable. */
openftl_status openftl_kv_close(openftl_kv *kv, openftl_error *error);

/* Gives a key a value. */
openftl_status openftl_kv_store(openftl_kv *kv, const void *key, size_t key_bytes, const void *value, size_t value_bytes,
                                int flags, openftl_error *error);

/* Copies the value of a key to a buffer, as much as fits. `value_bytes` gets the length of all of it: where that is more than the
 * buffer has, ask again with a larger one. */
openftl_status openftl_kv_retrieve(openftl_kv *kv, const void *key, size_t key_bytes, void *buffer, size_t buffer_bytes,
                                   size_t *value_bytes, openftl_error *error);

/* Whether there is a key; `value_bytes`, where it is not null, gets the length of its value. */
openftl_status openftl_kv_exist(openftl_kv *kv, const void *key, size_t key_bytes, size_t *value_bytes,
                                openftl_error *error);

/* Deletes a key. */
openftl_status openftl_kv_delete(openftl_kv *kv, const void *key, size_t key_bytes, int flags, openftl_error *error);

/* Calls `each` for keys in the order of their bytes: from `from` on, or from the first one on if `from_bytes` is 0, until it returns
 * something else than 0. It may ask the drive for other things. */
typedef int (*openftl_kv_each)(void *context, const void *key, size_t key_bytes);
openftl_status openftl_kv_list(openftl_kv *kv, const void *from, size_t from_bytes, openftl_kv_each each, void *context,
                               openftl_error *error);

/* All that was stored and deleted is durable. */
openftl_status openftl_kv_flush(openftl_kv *kv, openftl_error *error);

#ifdef __cplusplus
}
#endif

#endif
