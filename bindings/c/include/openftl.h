/*
 * OpenFTL: files on a table drive (an FTL for LSM-trees), on zones or of a file system on segments, and a store of pages from C. Stores of
 * pages are at the end.
 *
 * A drive is opened by its URI and used by any number of threads. What it keeps are files by name:
 *
 *   tables      write once, from front to back; there as a whole when they are committed, synced or closed, or not at all
 *   log files   appended to and synced as often as one likes; any size from one byte on
 *   folders     which exist so that they can be listed
 *
 * Which of the two kinds of file a name is, is said when it is made. Paths are absolute, of at most OPENFTL_PATH_MAX bytes,
 * with "/" between names; "." and ".." mean nothing.
 *
 * What is synced is found again after a power cut and after the death of the process. What is not synced may be lost with
 * either, newest first: a file then ends where it ended earlier, and names are as they were earlier. openftl_sync_folder
 * makes every change of names before it durable, and every sync all that was committed before it.
 *
 * Every function returns an openftl_status; `error`, where it is not null, is filled when that is not OPENFTL_OK.
 */
#ifndef OPENFTL_H
#define OPENFTL_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The version of this interface; openftl_abi_version() is that of the library. They have to be equal. */
#define OPENFTL_ABI_VERSION 1

/* Bytes of a path, its end not counted. */
#define OPENFTL_PATH_MAX 1024

typedef enum openftl_status {
    OPENFTL_OK = 0,
    OPENFTL_NOT_FOUND = 1,     /* no such file or folder */
    OPENFTL_EXISTS = 2,        /* there is one already */
    OPENFTL_NO_SPACE = 3,      /* no room now; there is when files have been deleted */
    OPENFTL_TOO_LARGE = 4,     /* more than the drive could hold if it were empty */
    OPENFTL_IO_ERROR = 5,      /* the medium lost data, or the link to a served drive broke */
    OPENFTL_CORRUPTION = 6,    /* what is on media does not verify */
    OPENFTL_BUSY = 7,          /* the drive is open elsewhere, or a lock is held, or a folder is not empty */
    OPENFTL_INVALID = 8,       /* an argument is wrong */
    OPENFTL_NOT_SUPPORTED = 9, /* a table cannot do that */
    OPENFTL_READ_ONLY = 10,    /* the drive is worn out, or has failed */
    OPENFTL_CONFLICT = 11      /* a page is not at the version that a batch expects */
} openftl_status;

typedef struct openftl_error {
    char message[512]; /* one line, ends with 0 */
} openftl_error;

typedef struct openftl_drive openftl_drive;
typedef struct openftl_file openftl_file;

typedef enum openftl_kind { OPENFTL_TABLE = 0, OPENFTL_LOG = 1, OPENFTL_FOLDER = 2 } openftl_kind;

/* How long what is written will live. */
typedef enum openftl_lifetime {
    OPENFTL_LIFETIME_UNKNOWN = 0,
    OPENFTL_LIFETIME_SHORT = 1,
    OPENFTL_LIFETIME_MEDIUM = 2,
    OPENFTL_LIFETIME_LONG = 3,
    OPENFTL_LIFETIME_EXTREME = 4
} openftl_lifetime;

typedef struct openftl_attributes {
    uint64_t bytes;
    uint64_t modified_s; /* seconds since 1970 */
    openftl_kind kind;
} openftl_attributes;

uint32_t openftl_abi_version(void);

/* ---- drives ---- */

/* Opens the drive of a URI, "openftl://" and the path of a drive description (TOML) with kind = "tables", "zones" or "segments", or of a
 * drive of zones or segments itself: "openftl:///srv/lsm.toml", or relative to the working folder, "openftl://lsm.toml". A table drive that a
 * server of this machine has open is used through that server. A drive of zones that has no files yet gets a catalog for them, and one of
 * segments a file system (ALFS), without a mount; a drive of zones with an ALFS keeps it. One whose zones or segments somebody else has
 * written is OPENFTL_INVALID. A process that opens the same drive again gets the same one. */
openftl_status openftl_open(const char *uri, openftl_drive **drive, openftl_error *error);

/* Ends the use of a drive; the last one closes it. Files of it have to be closed before. */
openftl_status openftl_close(openftl_drive *drive, openftl_error *error);

/* Bytes that tables (on zones and segments: files) could still take, and that they could if the drive were empty. */
openftl_status openftl_space(openftl_drive *drive, uint64_t *free_bytes, uint64_t *all_bytes, openftl_error *error);

/* What the drive did since it was opened, as JSON. Free it with openftl_free_text. */
openftl_status openftl_statistics(openftl_drive *drive, char **json, openftl_error *error);
void openftl_free_text(char *text);

/* ---- files being written ----
 *
 * A file is appended to by one thread at a time; another may sync or flush it meanwhile. What was appended to a log file is read by others at
 * once; what was appended to a table too, but for its last 4096 bytes, which are when it is synced or closed. A table that was
 * committed or synced is there as a whole, and cannot be appended to (OPENFTL_NOT_SUPPORTED). */

/* Makes a file, in place of one of that name, if there is one. Its folder has to be there. */
openftl_status openftl_create(openftl_drive *drive, const char *path, openftl_kind kind, openftl_file **file,
                              openftl_error *error);

/* Goes on at the end of a log file, or makes it. A table cannot be gone on with. */
openftl_status openftl_append_to(openftl_drive *drive, const char *path, openftl_file **file, openftl_error *error);

/* Hints, before the first byte; they say where a table is placed, and never what can be done with it. 0 bytes: unknown. */
void openftl_hint_size(openftl_file *file, uint64_t expected_bytes);
void openftl_hint_lifetime(openftl_file *file, openftl_lifetime lifetime);

openftl_status openftl_append(openftl_file *file, const void *data, size_t bytes, openftl_error *error);

/* Writes at `offset`, which may be the end of the file, or before it by at most OPENFTL_REWRITE_MAX bytes: what is there is
 * replaced. */
#define OPENFTL_REWRITE_MAX 4096
openftl_status openftl_write_at(openftl_file *file, uint64_t offset, const void *data, size_t bytes,
                                openftl_error *error);

/* Cuts the file to `bytes`, which is at most its size. */
openftl_status openftl_truncate(openftl_file *file, uint64_t bytes, openftl_error *error);

/* What was appended survives the death of this process, if a server has the drive. */
openftl_status openftl_flush(openftl_file *file, openftl_error *error);

/* What was appended, and the name of the file, will be durable as soon as any file or folder of the drive is synced; a table is
 * whole from now on. This costs no sync: it is for files that mean nothing before another one names them. */
openftl_status openftl_commit(openftl_file *file, openftl_error *error);

/* What was appended is durable, and so is the name of the file. */
openftl_status openftl_sync(openftl_file *file, openftl_error *error);

/* Bytes of the file so far. */
uint64_t openftl_size(const openftl_file *file);

/* Ends the file. A table that was not synced is there as a whole from now on, but a power cut may take it away. Also frees
 * `file` when it fails. */
openftl_status openftl_close_file(openftl_file *file, openftl_error *error);

/* ---- files being read ---- */

/* Opens a file for reading; it can be read until it is closed, also when it has been deleted or replaced. */
openftl_status openftl_open_read(openftl_drive *drive, const char *path, openftl_file **file, openftl_error *error);

/* Reads up to `bytes` bytes from `offset` on; `got` is less only at the end of the file. */
openftl_status openftl_read(openftl_file *file, uint64_t offset, size_t bytes, void *buffer, size_t *got,
                            openftl_error *error);

typedef struct openftl_read_request {
    uint64_t offset;
    size_t bytes;
    void *buffer;
    size_t got;            /* out */
    openftl_status status; /* out */
} openftl_read_request;

/* Reads all of them at a time, and sets the status of each. Returns the first status that is not OPENFTL_OK, if any. */
openftl_status openftl_read_many(openftl_file *file, openftl_read_request *requests, size_t count,
                                 openftl_error *error);

/* A number that differs from that of every other file on the drive. */
uint64_t openftl_file_id(const openftl_file *file);

/* ---- names ---- */

openftl_status openftl_stat(openftl_drive *drive, const char *path, openftl_attributes *attributes,
                            openftl_error *error);

/* Calls `each` for everything in a folder, in the order of the names. */
typedef void (*openftl_each)(void *context, const char *name, const openftl_attributes *attributes);
openftl_status openftl_list(openftl_drive *drive, const char *folder, openftl_each each, void *context,
                            openftl_error *error);

/* Deletes a file. */
openftl_status openftl_delete(openftl_drive *drive, const char *path, openftl_error *error);

/* Gives a file another name; one that has it is replaced, all at once. A folder cannot be renamed. */
openftl_status openftl_rename(openftl_drive *drive, const char *from, const char *to, openftl_error *error);

/* OPENFTL_EXISTS if it is there. Folders above it have to be there, but for "/". */
openftl_status openftl_make_folder(openftl_drive *drive, const char *path, openftl_error *error);

/* OPENFTL_BUSY if it is not empty. */
openftl_status openftl_delete_folder(openftl_drive *drive, const char *path, openftl_error *error);

/* Every change of names before this is durable. */
openftl_status openftl_sync_folder(openftl_drive *drive, const char *path, openftl_error *error);

/* Locks a name, whether or not it is a file; OPENFTL_BUSY if it is locked. Locks end with the process. */
openftl_status openftl_lock(openftl_drive *drive, const char *path, openftl_error *error);
openftl_status openftl_unlock(openftl_drive *drive, const char *path, openftl_error *error);

/* ---- stores of pages ----
 *
 * A store keeps pages of any size by number. They are changed in batches: all of a batch is there after a crash, or nothing of it, and batches of
 * one session in the order of their write sequence numbers. Any number of threads may use a store and a session; a batch is filled by one thread at
 * a time. Whoever commits a batch again under the number that it has, with the same changes, changes nothing and gets OPENFTL_OK: so a host repeats a
 * commit of which it did not hear the end. Another batch under a number that is used is OPENFTL_INVALID. */

/* Bytes of a page, at most. Devices with small chunks have a smaller limit: it is in the message of OPENFTL_INVALID. */
#define OPENFTL_PAGE_BYTES_MAX (1u << 20)

typedef struct openftl_store openftl_store;
typedef struct openftl_session openftl_session;
typedef struct openftl_batch openftl_batch;

typedef struct openftl_page {
    uint32_t bytes;   /* of the whole page */
    uint64_t version; /* of two versions the later one is greater */
} openftl_page;

/* Opens the store of a URI, "openftl://" and the path of a drive description with kind = "pages", or of the file that the flash is kept in. A process
 * that opens the same store again gets the same one. OPENFTL_INVALID says what is wrong, also that another process has the store. */
openftl_status openftl_store_open(const char *uri, openftl_store **store, openftl_error *error);

/* Ends the use of a store; the last one closes it, and all of it is durable. Its sessions and batches have to be closed before: else OPENFTL_BUSY, and
 * what was not durable may be lost. Also frees `store` when it fails. */
openftl_status openftl_store_close(openftl_store *store, openftl_error *error);

/* All that was committed before is durable. */
openftl_status openftl_store_sync(openftl_store *store, openftl_error *error);

/* Bytes that pages could still take, with 32 bytes for each and rounded up to 64, and that they could if there were none. */
openftl_status openftl_store_space(openftl_store *store, uint64_t *free_bytes, uint64_t *all_bytes,
                                   openftl_error *error);

/* Opens a session by an identifier of the host's choice, and says which batch of it was the last durable one: 0 for a new session. OPENFTL_BUSY if it is
 * open, or if there are too many. */
openftl_status openftl_session_open(openftl_store *store, const uint8_t id[16], openftl_session **session,
                                    uint64_t *last_wsn, openftl_error *error);

/* Closes a session: batches that are not committed are given up. With `forget` other than 0 the store does not know its identifier any more. Also frees
 * `session` when it fails. */
openftl_status openftl_session_close(openftl_session *session, int forget, openftl_error *error);

/* Begins batch `wsn` of a session. The numbers follow each other from 1 on; a few may be filled at a time, and each is committed after those before. */
openftl_status openftl_batch_new(openftl_session *session, uint64_t wsn, openftl_batch **batch, openftl_error *error);

/* Adds a change to a batch: the page has these bytes, or there is no such page. The bytes are the caller's again when it returns. With an `if_version`
 * that is not null nothing of the batch is committed unless the page has that version then, 0: unless there is none (OPENFTL_CONFLICT). */
openftl_status openftl_batch_put(openftl_batch *batch, uint64_t lpid, const void *data, size_t bytes,
                                 const uint64_t *if_version, openftl_error *error);
openftl_status openftl_batch_delete(openftl_batch *batch, uint64_t lpid, const uint64_t *if_version,
                                    openftl_error *error);

/* Commits a batch, and frees it, also when it fails. With `durable` other than 0 it survives a power cut when this returns; else it is durable with the
 * next one that is. */
openftl_status openftl_batch_commit(openftl_batch *batch, int durable, openftl_error *error);

/* Gives a batch up, and frees it. */
openftl_status openftl_batch_abort(openftl_batch *batch, openftl_error *error);

/* Reads up to `bytes` bytes of a committed page from `offset` on; `got` is less only at its end. `page`, where it is not null, is filled.
 * OPENFTL_NOT_FOUND if there is no such page. */
openftl_status openftl_page_read(openftl_store *store, uint64_t lpid, uint32_t offset, void *buffer, size_t bytes,
                                 size_t *got, openftl_page *page, openftl_error *error);
openftl_status openftl_page_stat(openftl_store *store, uint64_t lpid, openftl_page *page, openftl_error *error);

/* Calls `each` for every committed page from `from` on, in the order of their numbers, until it returns something other than 0. */
typedef int (*openftl_each_page)(void *context, uint64_t lpid, uint32_t bytes);
openftl_status openftl_page_list(openftl_store *store, uint64_t from, openftl_each_page each, void *context,
                                 openftl_error *error);

#ifdef __cplusplus
}
#endif

#endif
