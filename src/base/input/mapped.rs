//! A file in memory without a copy, also when it becomes shorter meanwhile.
//!
//! Bytes that are no longer in a mapped file are answered with a signal (`SIGBUS`), which ends the process. Here they
//! read as zeros from then on, and the map says so: whoever reads it finishes, and then tells that the file changed.
#![allow(unsafe_code)] // the memory map and the handler of its signal

use std::fs::File;
use std::io;
use std::ops::Deref;

use memmap2::Mmap;

/// The content of a file.
#[derive(Debug)]
pub(super) struct Mapped {
    map: Mmap,
    watched: &'static signal::WatchedMap,
}

impl Mapped {
    /// Maps `file`.
    pub(super) fn new(file: &File) -> io::Result<Self> {
        // SAFETY: the map is read-only and lives as long as the `Mapped`. Another process may change the bytes
        // meanwhile: they are only ever read as bytes, whatever they are. What is cut off reads as zeros, see
        // `signal`.
        let map = unsafe { Mmap::map(file) }?;
        let watched = signal::register(&map);
        Ok(Self { map, watched })
    }

    /// Whether bytes were asked for that the file no longer has.
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
    //! The handler of `SIGBUS`: it knows every map, and puts zeros in the place of what is gone.

    use std::ptr;
    use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering::SeqCst};
    use std::sync::{Mutex, OnceLock, PoisonError};

    /// Every map that lives, and places of maps that no longer do. Only ever grows, at its head.
    static MAPS: AtomicPtr<WatchedMap> = AtomicPtr::new(ptr::null_mut());
    /// One thread at a time gives places out.
    static REGISTRATION: Mutex<()> = Mutex::new(());
    static PREVIOUS: OnceLock<PreviousHandler> = OnceLock::new();

    /// What was there before the handler, and the bytes of a page.
    struct PreviousHandler {
        action: libc::sigaction,
        page: usize,
    }

    /// The place of a map.
    #[derive(Debug)]
    pub(super) struct WatchedMap {
        /// First address; 0 where no map has the place.
        start: AtomicUsize,
        end: AtomicUsize,
        is_truncated: AtomicBool,
        next: *const WatchedMap,
    }

    // SAFETY: `next` is set before others see the place, points to one that lives for ever, and stays as it is.
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
        let mut at = MAPS.load(SeqCst).cast_const();
        std::iter::from_fn(move || {
            // SAFETY: a place lives for ever.
            let map = unsafe { at.as_ref() }?;
            at = map.next;
            Some(map)
        })
    }

    /// Lets the handler know of the map `bytes`.
    pub(super) fn register(bytes: &[u8]) -> &'static WatchedMap {
        let _one_at_a_time = REGISTRATION.lock().unwrap_or_else(PoisonError::into_inner);
        PREVIOUS.get_or_init(install);
        if let Some(vacant) = maps().find(|map| map.start.load(SeqCst) == 0) {
            vacant.set_range(bytes);
            return vacant;
        }
        let place: &'static mut WatchedMap = Box::leak(Box::new(WatchedMap {
            start: AtomicUsize::new(0),
            end: AtomicUsize::new(0),
            is_truncated: AtomicBool::new(false),
            next: MAPS.load(SeqCst),
        }));
        place.set_range(bytes);
        MAPS.store(place, SeqCst);
        place
    }

    fn install() -> PreviousHandler {
        // SAFETY: all zeros is a valid `sigaction`; the handler does only what a handler may do (atomics and system
        // calls). The page size is a question without effect.
        unsafe {
            let mut ours: libc::sigaction = std::mem::zeroed();
            let mut before: libc::sigaction = std::mem::zeroed();
            ours.sa_sigaction = on_bus_error as *const () as usize;
            ours.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
            libc::sigaction(libc::SIGBUS, &raw const ours, &raw mut before);
            let page = usize::try_from(libc::sysconf(libc::_SC_PAGESIZE)).unwrap_or(4096);
            PreviousHandler { action: before, page }
        }
    }

    extern "C" fn on_bus_error(_: libc::c_int, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
        // SAFETY: the system gives a valid `info`. Only pages of a map of ours are replaced, which stay readable.
        unsafe {
            let Some(before) = PREVIOUS.get() else { libc::abort() };
            let at = (*info).si_addr().addr();
            let is_here =
                |map: &&WatchedMap| (map.start.load(SeqCst)..map.end.load(SeqCst)).contains(&at);
            if let Some(map) = maps().find(is_here) {
                map.is_truncated.store(true, SeqCst);
                let first = at - at % before.page;
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
            // Not ours: it comes again, to whoever was there before.
            libc::sigaction(libc::SIGBUS, &raw const before.action, ptr::null_mut());
        }
    }
}

#[cfg(not(unix))]
mod signal {
    //! Other systems refuse to cut off what is mapped.

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
    fn what_is_cut_off_reads_as_zeros() {
        let file = tempfile::tempfile().unwrap();
        let big = vec![7; 1 << 20];
        io::Write::write_all(&mut &file, &big).unwrap();
        let maps = [Mapped::new(&file).unwrap(), Mapped::new(&file).unwrap()];
        assert_eq!(maps[0].last(), Some(&7));
        file.set_len(1).unwrap();
        assert_eq!((maps[0].first(), maps[0].last()), (Some(&7), Some(&0)));
        assert_eq!(maps.each_ref().map(Mapped::is_truncated), [true, false]);
        drop(maps);
        assert!(!Mapped::new(&file).unwrap().is_truncated(), "a place of its own, or a clean one");
    }
}
