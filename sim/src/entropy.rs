//! The random numbers of this process, made from the seed of the run.
//!
//! Hash maps of the standard library and the choices of `tokio::select!` begin with bytes from the system. The standard library
//! asks for them through a weak symbol, so that they can be taken from elsewhere; here they are.
#![allow(unsafe_code, reason = "a symbol of the C library is defined here, and it is given a pointer")]

use std::sync::atomic::{AtomicU64, Ordering};

static STATE: AtomicU64 = AtomicU64::new(0);

/// Begins anew. What was drawn before by this thread stays drawn: use a new thread for a run, and one process for one run.
pub fn seed(seed: u64) {
    STATE.store(seed, Ordering::SeqCst);
}

fn draw() -> u64 {
    crate::dice::mix(STATE.fetch_add(crate::dice::STEP, Ordering::SeqCst))
}

/// What the C library has under this name fills `buffer` with random bytes.
///
/// # Safety
/// `buffer` must be valid for writes of `length` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn getrandom(
    buffer: *mut libc::c_void,
    length: libc::size_t,
    _flags: libc::c_uint,
) -> libc::ssize_t {
    // SAFETY: the caller says that so many bytes may be written there.
    let bytes = unsafe { std::slice::from_raw_parts_mut(buffer.cast::<u8>(), length) };
    for chunk in bytes.chunks_mut(8) {
        chunk.copy_from_slice(&draw().to_le_bytes()[..chunk.len()]);
    }
    length.cast_signed()
}
