/* SQLite in one file, with the VFS `openftl` in it from its first moment on. For programs of SQLite's own suites, which cannot load libraries.
 *
 * With OPENFTL_TCL it also has a command `vfs_delete` of Tcl, which deletes files of the default VFS: scripts of the suite begin with the deletion of
 * what the one before has left. */
#include "sqlite3.c"

int sqlite3_openftlsqlite_init(void *, char **, const void *);

int openftl_extra_init(const char *unused) {
    (void)unused;
    return sqlite3_openftlsqlite_init(0, 0, &sqlite3Apis) == SQLITE_OK_LOAD_PERMANENTLY ? SQLITE_OK : SQLITE_ERROR;
}

#ifdef OPENFTL_TCL
#include "tcl.h"

static int vfs_delete(ClientData data, Tcl_Interp *interp, int count, Tcl_Obj *const words[]) {
    sqlite3_vfs *vfs = sqlite3_vfs_find(0);
    char full[2048];
    int at;
    (void)data, (void)interp;
    for (at = 1; vfs && at < count; at++)
        if (vfs->xFullPathname(vfs, Tcl_GetString(words[at]), (int)sizeof full, full) == SQLITE_OK)
            vfs->xDelete(vfs, full, 0);
    return TCL_OK;
}

const char *sqlite3TestInit(Tcl_Interp *);

const char *openftl_test_init(Tcl_Interp *interp) {
    const char *script = sqlite3TestInit(interp);
    Tcl_CreateObjCommand(interp, "vfs_delete", vfs_delete, 0, 0);
    return script;
}
#endif
