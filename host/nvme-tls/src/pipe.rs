//! The stream as the library sees it: two callbacks, and a pointer that is good for one call.

use std::ffi::{c_int, c_void};
use std::io::{self, ErrorKind, Read, Write};
use std::ptr::null_mut;
use std::slice;
use std::task::Poll;

use errno::{Errno, set_errno};
use s2n_tls::connection::Connection;
use s2n_tls::error::{Error, ErrorType};

/// EAGAIN and EIO, by which the library tells a stream that has nothing from one that is broken.
const NOTHING_YET: Errno = Errno(11);
const BROKEN: Errno = Errno(5);

struct Pipe<'s, S> {
    stream: &'s mut S,
    /// What the stream said last, if it is broken.
    error: Option<io::Error>,
}

/// Lets the library work on `stream`. What would block is [`ErrorKind::WouldBlock`], a peer that is gone
/// [`ErrorKind::UnexpectedEof`], one that breaks the protocol [`ErrorKind::InvalidData`]; others are the stream's.
pub(crate) fn run<S: Read + Write, T>(
    connection: &mut Connection,
    stream: &mut S,
    call: impl FnOnce(&mut Connection) -> Poll<Result<T, Error>>,
) -> io::Result<T> {
    let mut pipe = Pipe { stream, error: None };
    let context: *mut Pipe<'_, S> = &raw mut pipe;
    attach(connection, context).map_err(failed)?;
    let polled = call(connection);
    attach::<S>(connection, null_mut()).map_err(failed)?;
    match polled {
        Poll::Ready(Ok(value)) => Ok(value),
        Poll::Pending => Err(ErrorKind::WouldBlock.into()),
        Poll::Ready(Err(error)) => Err(pipe.error.take().unwrap_or_else(|| failed(error))),
    }
}

fn attach<S: Read + Write>(connection: &mut Connection, pipe: *mut Pipe<'_, S>) -> Result<(), Error> {
    connection.set_receive_callback(Some(receive::<S>))?;
    connection.set_send_callback(Some(send::<S>))?;
    // SAFETY: the library hands the pointer to the two callbacks only, and calls them only while one of its functions runs.
    // `run` makes it null again before what it points to ends, and the callbacks take null for a stream that is broken.
    unsafe {
        connection.set_receive_context(pipe.cast::<c_void>())?;
        connection.set_send_context(pipe.cast::<c_void>())?;
    }
    Ok(())
}

fn failed(error: Error) -> io::Error {
    let kind = match error.kind() {
        ErrorType::ConnectionClosed => ErrorKind::UnexpectedEof,
        _ => ErrorKind::InvalidData,
    };
    io::Error::new(kind, format!("TLS: {}", error.message()))
}

unsafe extern "C" fn receive<S: Read>(context: *mut c_void, room: *mut u8, length: u32) -> c_int {
    if context.is_null() {
        set_errno(BROKEN);
        return -1;
    }
    // SAFETY: where it is not null, `run` is on the stack, made it from this type, and touches it no more until it is null.
    let pipe = unsafe { &mut *context.cast::<Pipe<'_, S>>() };
    // SAFETY: the library owns so many bytes there and waits for them. They come from an allocator and may hold anything;
    // the length is that of one read, far below what a slice may have.
    let room = unsafe { slice::from_raw_parts_mut(room, length as usize) };
    done(&mut pipe.error, || pipe.stream.read(room))
}

unsafe extern "C" fn send<S: Write>(context: *mut c_void, bytes: *const u8, length: u32) -> c_int {
    if context.is_null() {
        set_errno(BROKEN);
        return -1;
    }
    // SAFETY: as in `receive`.
    let pipe = unsafe { &mut *context.cast::<Pipe<'_, S>>() };
    // SAFETY: the library has so many bytes to send there, and does not change them meanwhile.
    let bytes = unsafe { slice::from_raw_parts(bytes, length as usize) };
    done(&mut pipe.error, || pipe.stream.write(bytes))
}

/// What a callback returns.
fn done(broken: &mut Option<io::Error>, mut call: impl FnMut() -> io::Result<usize>) -> c_int {
    loop {
        match call() {
            Ok(count) => return count as c_int,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                set_errno(NOTHING_YET);
                return -1;
            }
            Err(error) => {
                *broken = Some(error);
                set_errno(BROKEN);
                return -1;
            }
        }
    }
}
