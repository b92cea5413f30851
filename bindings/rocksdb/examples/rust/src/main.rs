//! A database on a drive, from Rust: opens it, puts, gets, iterates, closes.

use rocksdb::{DB, Env, IteratorMode, Options};
use std::ffi::{CStr, CString, c_char, c_void};

unsafe extern "C" {
    fn openftl_rocksdb_env(uri: *const c_char, error: *mut *mut c_char) -> *mut c_void;
}

fn env(uri: &str) -> Result<Env, String> {
    let uri = CString::new(uri).map_err(|error| error.to_string())?;
    let mut error = std::ptr::null_mut();
    let env = unsafe { openftl_rocksdb_env(uri.as_ptr(), &mut error) };
    if env.is_null() {
        Err(unsafe { CStr::from_ptr(error) }.to_string_lossy().into())
    } else {
        Ok(unsafe { Env::from_raw(env.cast()) })
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut options = Options::default();
    options.create_if_missing(true);
    options.set_env(&env(&std::env::args().nth(1).ok_or("say which drive: openftl:///srv/lsm.toml")?)?);
    let database = DB::open(&options, "/hello")?;
    database.put("greeting", "hello")?;
    println!("got {:?}", database.get("greeting")?.map(String::from_utf8));
    for entry in database.iterator(IteratorMode::Start) {
        let (key, value) = entry?;
        println!("{}: {}", String::from_utf8_lossy(&key), String::from_utf8_lossy(&value));
    }
    Ok(())
}
