//! A memory-mapped file that survives truncation.
//!
//! Reading a mapped page that the file no longer has raises `SIGBUS`, which kills the process. Here such pages read as
//! zeros, and the map records it: the reader finishes, then reports that the file changed.
#![allow(unsafe_code)] // the memory map and the handler of its signal

use std::fs::File;
use std::io;
use std::ops::Deref;

use memmap2::Mmap;

#[derive(Debug)]
pub(super) struct Mapped {
    map: Mmap,
    watched: &'static signal::WatchedMap,
}

impl Mapped {
    pub(super) fn new(file: &File) -> io::Result<Self> {
        // SAFETY: the map is read-only and lives as long as the `Mapped`. Another process may change the bytes
        // meanwhile: any bytes are valid. Truncated pages read as zeros, see `signal`.
        let map = unsafe { Mmap::map(file) }?;
        let watched = signal::register(&map);
        Ok(Self { map, watched })
    }

    /// Whether a read hit a page that the file no longer has.
    pub(super) fn is_truncated(&self) -> bool {
        self.watched.is_truncated()
    }
}

impl Deref for Mapped {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.map
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        self.watched.release();
    }
}

#[cfg(unix)]
mod signal {
    //! The handler of `SIGBUS`: it knows every map, and replaces missing pages by zeros.

    use std::ptr;
    use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering::SeqCst};
    use std::sync::{Mutex, OnceLock, PoisonError};

    /// A list of all maps, and of entries to reuse. It only grows, at its head, since a signal handler may be walking
    /// it.
    static MAPS: AtomicPtr<WatchedMap> = AtomicPtr::new(ptr::null_mut());
    /// Held while an entry is added or reused.
    static REGISTRATION: Mutex<()> = Mutex::new(());
    static PREVIOUS: OnceLock<PreviousHandler> = OnceLock::new();

    /// The handler that was installed before, and the page size.
    struct PreviousHandler {
        action: libc::sigaction,
        page: usize,
    }

    /// An entry of the list.
    #[derive(Debug)]
    pub(super) struct WatchedMap {
        /// First address; 0 if no map uses the entry.
        start: AtomicUsize,
        end: AtomicUsize,
        is_truncated: AtomicBool,
        next: *const WatchedMap,
    }

    // SAFETY: `next` is set before others see the entry, never changes, and points to an entry that lives for ever.
    unsafe impl Sync for WatchedMap {}
    // SAFETY: as above.
    unsafe impl Send for WatchedMap {}

    impl WatchedMap {
        pub(super) fn is_truncated(&self) -> bool {
            self.is_truncated.load(SeqCst)
        }

        pub(super) fn release(&self) {
            self.start.store(0, SeqCst);
        }

        fn set_range(&self, bytes: &[u8]) {
            self.is_truncated.store(false, SeqCst);
            self.end.store(bytes.as_ptr().addr() + bytes.len(), SeqCst);
            self.start.store(bytes.as_ptr().addr(), SeqCst);
        }
    }

    fn maps() -> impl Iterator<Item = &'static WatchedMap> {
        let mut next = MAPS.load(SeqCst).cast_const();
        std::iter::from_fn(move || {
            // SAFETY: an entry lives for ever.
            let map = unsafe { next.as_ref() }?;
            next = map.next;
            Some(map)
        })
    }

    pub(super) fn register(bytes: &[u8]) -> &'static WatchedMap {
        let _guard = REGISTRATION.lock().unwrap_or_else(PoisonError::into_inner);
        PREVIOUS.get_or_init(install);
        if let Some(vacant) = maps().find(|map| map.start.load(SeqCst) == 0) {
            vacant.set_range(bytes);
            return vacant;
        }
        let entry: &'static mut WatchedMap = Box::leak(Box::new(WatchedMap {
            start: AtomicUsize::new(0),
            end: AtomicUsize::new(0),
            is_truncated: AtomicBool::new(false),
            next: MAPS.load(SeqCst),
        }));
        entry.set_range(bytes);
        MAPS.store(entry, SeqCst);
        entry
    }

    fn install() -> PreviousHandler {
        // SAFETY: all zeros is a valid `sigaction`; the handler does only what a handler may do (atomics and system
        // calls). Querying the page size has no effect.
        unsafe {
            let mut new: libc::sigaction = std::mem::zeroed();
            let mut previous: libc::sigaction = std::mem::zeroed();
            new.sa_sigaction = on_bus_error as *const () as usize;
            new.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
            libc::sigaction(libc::SIGBUS, &raw const new, &raw mut previous);
            let page = usize::try_from(libc::sysconf(libc::_SC_PAGESIZE)).unwrap_or(4096);
            PreviousHandler { action: previous, page }
        }
    }

    extern "C" fn on_bus_error(_: libc::c_int, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
        // SAFETY: the system passes a valid `info`. Only pages of our own maps are replaced, and they stay readable.
        unsafe {
            let Some(previous) = PREVIOUS.get() else { libc::abort() };
            let address = (*info).si_addr().addr();
            if let Some(map) = maps().find(|map| (map.start.load(SeqCst)..map.end.load(SeqCst)).contains(&address)) {
                map.is_truncated.store(true, SeqCst);
                let first = address - address % previous.page;
                let zeros = libc::mmap(
                    ptr::with_exposed_provenance_mut(first),
                    map.end.load(SeqCst) - first,
                    libc::PROT_READ,
                    libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED,
                    -1,
                    0,
                );
                if zeros != libc::MAP_FAILED {
                    return;
                }
            }
            // Not our map: the fault repeats, with the previous handler.
            libc::sigaction(libc::SIGBUS, &raw const previous.action, ptr::null_mut());
        }
    }
}

#[cfg(not(unix))]
mod signal {
    //! Other systems refuse to truncate a mapped file.

    #[derive(Debug)]
    pub(super) struct WatchedMap;

    #[expect(clippy::unused_self, reason = "the signatures are those of the other systems")]
    impl WatchedMap {
        pub(super) fn is_truncated(&self) -> bool {
            false
        }

        pub(super) fn release(&self) {}
    }

    pub(super) fn register(_: &[u8]) -> &'static WatchedMap {
        &WatchedMap
    }
}

#[cfg(unix)]
#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn truncated_pages_read_as_zeros() {
        let file = tempfile::tempfile().unwrap();
        let big = vec![7; 1 << 20];
        io::Write::write_all(&mut &file, &big).unwrap();
        let maps = [Mapped::new(&file).unwrap(), Mapped::new(&file).unwrap()];
        assert_eq!(maps[0].last(), Some(&7));
        file.set_len(1).unwrap();
        assert_eq!((maps[0].first(), maps[0].last()), (Some(&7), Some(&0)));
        assert_eq!(maps.each_ref().map(Mapped::is_truncated), [true, false]);
        drop(maps);
        assert!(!Mapped::new(&file).unwrap().is_truncated(), "a reused entry is reset");
    }
}
