//! Links the plugin: OPENFTL_ROCKSDB_LIB_DIR is the folder of libopenftl_rocksdb.so.

fn main() {
    println!("cargo:rerun-if-env-changed=OPENFTL_ROCKSDB_LIB_DIR");
    for folder in ["OPENFTL_ROCKSDB_LIB_DIR", "ROCKSDB_LIB_DIR"].map(|name| std::env::var(name).expect(name)) {
        println!("cargo:rustc-link-search=native={folder}");
        println!("cargo:rustc-link-arg=-Wl,-rpath,{folder}");
    }
    println!("cargo:rustc-link-lib=dylib=openftl_rocksdb");
}
