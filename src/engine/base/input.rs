//! Reads a file or standard input, and decompresses gzip and zstd.
//!
//! A [`Source`] has all bytes at once. It maps plain files, so that a 2 GB snapshot needs no private memory, and reads
//! compressed input and standard input into memory. [`read_pieces`] and [`decompress_reader`] stream instead.

mod html;
mod mapped;
mod text;
mod zstd;

use std::cell::Cell;
use std::fs::{File, Metadata};
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom};
use std::iter;
use std::ops::Deref;
use std::path::Path;
use std::rc::Rc;
use std::time::SystemTime;

use thiserror::Error;

use self::mapped::Mapped;
pub use self::text::looks_like_log;
use self::text::{Encoding, Utf8Reader};
use self::zstd::{ZstdFrames, is_zstd};
use crate::base::threads;
use crate::base::units::{GIB, MIB, size};

/// Decompressed bytes allowed per compressed byte. Real snapshots compress 5 to 40 times.
const MAX_EXPANSION: u64 = 100;
/// A decompressed size that is always allowed.
const MIN_DECOMPRESSED_LIMIT: u64 = 64 * MIB;

/// Limit for input without a known size: standard input, a pipe, a device. No snapshot is as large.
const MAX_UNSIZED_BYTES: u64 = 4 * GIB;
/// Bytes of such input that are examined before the rest is read.
const START_BYTES: u64 = 16;
/// The same for a log, which is read line by line.
const MAX_LOG_BYTES: u64 = GIB;

/// Bytes of a file that are read at once.
const READ_BYTES: usize = 1 << 20;

/// Limit for a configuration or measured costs.
const MAX_TEXT_BYTES: u64 = 64 * MIB;

const GZIP: [u8; 2] = [0x1f, 0x8b];

/// Formats to recognize for the error message: magic bytes, name, and the command that decompresses.
const UNSUPPORTED_COMPRESSION: [(&[u8], &str, &str); 2] =
    [(b"\xfd7zXZ\0", "xz", "xz -d"), (b"BZh", "bzip2", "bzip2 -d")];

/// Why input cannot be read. The caller prefixes the name of the file.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum InputError {
    #[error("cannot be read: {0}")]
    Io(#[from] io::Error),
    #[error("is a directory, not a snapshot")]
    Directory,
    /// A device that never ends, such as `/dev/zero`.
    #[error("is a device without end, not a file")]
    EndlessDevice,
    /// Input without a known size starts with zeros.
    #[error("starts with zeros, as no snapshot does")]
    Zeros,
    #[error("is compressed with {0}: decompress it first ({1})")]
    UnsupportedCompression(&'static str, &'static str),
    #[error("is damaged {kind} data: {source}")]
    Compressed {
        /// `gzip` or `zstd`.
        kind: &'static str,
        source: io::Error,
    },
    #[error("needs more memory than there is")]
    OutOfMemory,
    /// The file was written or truncated during the read.
    #[error("changed while it was read; try again when it is complete")]
    Changed,
    /// Input without a known size exceeds its limit.
    #[error("does not end: more than {} were read; save it to a file and pass that", size(*limit))]
    Unbounded { limit: u64 },
    #[error(
        "exceeds {} when decompressed, more than {MAX_EXPANSION} times its size: it may be a decompression bomb; if \
         you trust it, decompress it first",
        size(*limit)
    )]
    DecompressionBomb { limit: u64 },
}

/// Reads a small text file: a configuration, measured costs.
///
/// # Errors
/// Any error from the file, and one for more than 64 MiB, as from a device without end.
pub fn read_text_file(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    File::open(path)?.take(MAX_TEXT_BYTES + 1).read_to_string(&mut text)?;
    if text.len() as u64 > MAX_TEXT_BYTES {
        return Err(io::Error::other(format!("it has more than {}", size(MAX_TEXT_BYTES))));
    }
    Ok(text)
}

/// The content of one input.
#[derive(Debug)]
pub struct Source {
    bytes: Bytes,
    stored_bytes: u64,
    /// The file and its stamp when it was opened; `None` for input without a known size.
    stamped_file: Option<(File, FileStamp)>,
    /// The file was truncated while it was decompressed.
    was_truncated: bool,
}

/// Length and time of a file, which show whether it has changed.
type FileStamp = (u64, Option<SystemTime>);

fn file_stamp(metadata: &Metadata) -> FileStamp {
    (metadata.len(), metadata.modified().ok())
}

#[derive(Debug)]
enum Bytes {
    Mapped(Mapped),
    Owned(Vec<u8>),
}

impl Deref for Source {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.bytes {
            Bytes::Mapped(map) => map,
            Bytes::Owned(vec) => vec,
        }
    }
}

impl Source {
    /// Content that is neither compressed nor text in another encoding.
    pub fn from_plain(bytes: Vec<u8>) -> Self {
        Self { stored_bytes: bytes.len() as u64, bytes: Bytes::Owned(bytes), stamped_file: None, was_truncated: false }
    }

    /// Decompresses `file`, of `stored_bytes`, while it is read: only a part of it is held beside its content.
    pub fn from_reader(file: impl Read + Seek, stored_bytes: u64) -> Result<Self, InputError> {
        let mut file = BufReader::with_capacity(READ_BYTES, file);
        let bytes = if let Some(bytes) = decompress(&mut file, stored_bytes)? {
            bytes
        } else {
            let mut bytes = Vec::new();
            let length = usize::try_from(stored_bytes).map_err(|_| InputError::OutOfMemory)?;
            bytes.try_reserve_exact(length).map_err(|_| InputError::OutOfMemory)?;
            file.read_to_end(&mut bytes)?;
            bytes
        };
        let mut source = Self { stored_bytes, ..Self::from_plain(bytes) };
        source.decode()?;
        Ok(source)
    }

    /// Opens `path`; `-` is standard input.
    pub fn open(path: &Path) -> Result<Self, InputError> {
        Self::open_stored(path)?.decompressed()
    }

    /// Opens `path`, and leaves its content compressed: see [`read_pieces`] and [`Source::decompressed`].
    pub fn open_stored(path: &Path) -> Result<Self, InputError> {
        if path.as_os_str() == "-" {
            return Ok(Self::from_plain(read_unsized(io::stdin().lock())?));
        }
        // Windows opens no directory; elsewhere it is opened like a file.
        if path.is_dir() {
            return Err(InputError::Directory);
        }
        let file = File::open(path)?;
        let metadata = file.metadata()?;
        if is_endless_device(&metadata) {
            return Err(InputError::EndlessDevice);
        }
        let bytes = map_or_read(&file)?;
        let stamped_file = metadata.is_file().then(|| (file, file_stamp(&metadata)));
        let source = Self { stored_bytes: 0, bytes, stamped_file, was_truncated: false };
        Ok(Self { stored_bytes: source.len() as u64, ..source })
    }

    /// Checks that the file has not changed since it was opened. Call it after reading, before using the result.
    ///
    /// # Errors
    /// [`InputError::Changed`] if the file was written or truncated.
    pub fn check_unchanged(&self) -> Result<(), InputError> {
        let Some((file, stamp)) = &self.stamped_file else { return Ok(()) }; // without a known size
        let is_changed = self.is_truncated() || file_stamp(&file.metadata()?) != *stamp;
        if is_changed { Err(InputError::Changed) } else { Ok(()) }
    }

    /// Bytes before decompression.
    pub fn stored_bytes(&self) -> u64 {
        self.stored_bytes
    }

    /// Decompresses the content of [`Source::open_stored`], and converts it to UTF-8.
    pub fn decompressed(mut self) -> Result<Self, InputError> {
        let result = self.decompress();
        self.check_unchanged()?; // explains an error of decompression as well
        result.map(|()| self)
    }

    fn decompress(&mut self) -> Result<(), InputError> {
        if let Some(bytes) = decompress(&mut io::Cursor::new(&**self), self.stored_bytes)? {
            self.replace_bytes(bytes);
        }
        self.decode()
    }

    /// Converts text to UTF-8, and takes the pickle out of an HTML page.
    fn decode(&mut self) -> Result<(), InputError> {
        if let Some(encoding) = Encoding::detect(self) {
            let mut text = Vec::new();
            Utf8Reader::new(&**self, encoding).read_to_end(&mut text)?;
            self.replace_bytes(text);
        }
        if let Some(pickle) = html::embedded_pickle(self) {
            self.replace_bytes(pickle);
        }
        Ok(())
    }

    fn replace_bytes(&mut self, bytes: Vec<u8>) {
        self.was_truncated = self.is_truncated();
        self.bytes = Bytes::Owned(bytes);
    }

    fn is_truncated(&self) -> bool {
        self.was_truncated || matches!(&self.bytes, Bytes::Mapped(map) if map.is_truncated())
    }
}

/// Whether it is a device that yields bytes without end: `/dev/zero`, `/dev/urandom` and the like.
#[cfg(unix)]
fn is_endless_device(metadata: &Metadata) -> bool {
    use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
    // Linux numbers them 1:5 (zero), 1:7 (full), 1:8 (random), 1:9 (urandom).
    let (major, minor) = (metadata.rdev() >> 8, metadata.rdev() & 0xff);
    metadata.file_type().is_char_device() && cfg!(target_os = "linux") && major == 1 && matches!(minor, 5 | 7..=9)
}

#[cfg(not(unix))]
fn is_endless_device(_: &Metadata) -> bool {
    false
}

/// The decompressed bytes allowed for `stored` compressed ones.
fn expansion_limit(stored: u64) -> u64 {
    MIN_DECOMPRESSED_LIMIT.max(stored.saturating_mul(MAX_EXPANSION))
}

fn unsupported_compression(start: &[u8]) -> Option<InputError> {
    let (_, kind, remedy) = UNSUPPORTED_COMPRESSION.iter().find(|(magic, ..)| start.starts_with(magic))?;
    Some(InputError::UnsupportedCompression(kind, remedy))
}

/// The content of `file`, of `stored_bytes`, if it is compressed. Otherwise nothing of it is consumed.
fn decompress(file: &mut (impl BufRead + Seek), stored_bytes: u64) -> Result<Option<Vec<u8>>, InputError> {
    let limit = expansion_limit(stored_bytes);
    let inflated_bytes = gzip_size(file)?;
    let start = file.fill_buf()?;
    if start.starts_with(&GZIP) {
        inflate("gzip", flate2::bufread::MultiGzDecoder::new(file), limit, inflated_bytes).map(Some)
    } else if is_zstd(start) {
        inflate("zstd", ZstdFrames::new(file), limit, 0).map(Some)
    } else {
        unsupported_compression(start).map_or(Ok(None), Err)
    }
}

/// Decompresses `source` (gzip, zstd) and converts it to UTF-8 while it is read.
///
/// # Errors
/// Any error from `source`, and [`InputError`] for unsupported compression and for input that exceeds its limit.
pub fn decompress_reader<'a>(mut source: impl BufRead + 'a) -> io::Result<Box<dyn BufRead + 'a>> {
    let start = source.fill_buf()?;
    let stored = Rc::new(Cell::new(0));
    let is_gzip = start.starts_with(&GZIP);
    let mut plain: Box<dyn BufRead + 'a> = if is_gzip || is_zstd(start) {
        let counted = Rc::clone(&stored);
        let source = BufReader::new(CheckedReader::new(source, move |read| {
            counted.set(counted.get() + read);
            Ok(())
        }));
        let inflated: Box<dyn Read + 'a> = if is_gzip {
            Box::new(flate2::bufread::MultiGzDecoder::new(source))
        } else {
            Box::new(ZstdFrames::new(source))
        };
        let mut bytes = 0;
        Box::new(BufReader::new(CheckedReader::new(inflated, move |read| {
            bytes += read;
            let limit = expansion_limit(stored.get());
            if bytes > limit { Err(InputError::DecompressionBomb { limit }) } else { Ok(()) }
        })))
    } else if let Some(error) = unsupported_compression(start) {
        return Err(io::Error::other(error));
    } else {
        Box::new(source)
    };
    Ok(match Encoding::detect(plain.fill_buf()?) {
        Some(encoding) => Box::new(BufReader::new(Utf8Reader::new(plain, encoding))),
        None => plain,
    })
}

/// Fails once `source` exceeds `MAX_LOG_BYTES`.
pub fn with_size_limit(source: impl Read) -> impl BufRead {
    let mut bytes = 0;
    BufReader::new(CheckedReader::new(source, move |read| {
        bytes += read;
        if bytes > MAX_LOG_BYTES { Err(InputError::Unbounded { limit: MAX_LOG_BYTES }) } else { Ok(()) }
    }))
}

/// The result of `read`, which takes the content of a file in pieces, decompressed at the same time where a core is
/// free. `None` if `stored` is not compressed. `progress` is called with numbers of further bytes of `stored`.
pub fn read_pieces<T>(
    stored: &[u8],
    progress: &(dyn Fn(u64) + Sync),
    read: impl FnOnce(&mut dyn Iterator<Item = io::Result<Vec<u8>>>) -> T,
) -> Option<T> {
    (stored.starts_with(&GZIP) || is_zstd(stored))
        .then(|| threads::feed(|| decompressed_pieces(stored, progress), read))
}

fn decompressed_pieces<'a>(stored: &'a [u8], progress: &'a dyn Fn(u64)) -> impl Iterator<Item = io::Result<Vec<u8>>> {
    let counted = CheckedReader::new(stored, move |more| {
        progress(more);
        Ok(())
    });
    decompress_reader(BufReader::with_capacity(READ_BYTES, counted)).into_iter().flat_map(|mut content| {
        iter::from_fn(move || {
            let mut piece = Vec::with_capacity(READ_BYTES);
            let read = content.by_ref().take(READ_BYTES as u64).read_to_end(&mut piece);
            read.map(|read| (read > 0).then_some(piece)).transpose()
        })
    })
}

/// Gives `check` the number of bytes of each read, which fails if that does.
struct CheckedReader<R, F> {
    source: R,
    check: F,
}

impl<R, F: FnMut(u64) -> Result<(), InputError>> CheckedReader<R, F> {
    fn new(source: R, check: F) -> Self {
        Self { source, check }
    }
}

impl<R: Read, F: FnMut(u64) -> Result<(), InputError>> Read for CheckedReader<R, F> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let read = self.source.read(out)?;
        (self.check)(read as u64).map_err(io::Error::other)?;
        Ok(read)
    }
}

/// The size of the content as a gzip file of one member ends with it; anything for other files.
fn gzip_size(file: &mut (impl Read + Seek)) -> io::Result<u64> {
    let mut size = [0; 4];
    if file.seek(SeekFrom::End(0))? >= size.len() as u64 {
        file.seek(SeekFrom::End(-4))?;
        file.read_exact(&mut size)?;
    }
    file.rewind()?;
    Ok(u64::from(u32::from_le_bytes(size)))
}

/// `expected` bytes of content have their place from the start, if there is as much, so that none of it moves.
fn inflate(kind: &'static str, decoder: impl Read, limit: u64, expected: u64) -> Result<Vec<u8>, InputError> {
    let mut out = Vec::new();
    // Otherwise decompression ends where memory does.
    let _ = out.try_reserve_exact(usize::try_from(expected.min(limit)).unwrap_or(0));
    decoder.take(limit + 1).read_to_end(&mut out).map_err(|source| match source.kind() {
        io::ErrorKind::OutOfMemory => InputError::OutOfMemory,
        _ => InputError::Compressed { kind, source },
    })?;
    if out.len() as u64 > limit { Err(InputError::DecompressionBomb { limit }) } else { Ok(out) }
}

/// Reads input without a known size.
fn read_unsized(source: impl Read) -> Result<Vec<u8>, InputError> {
    let mut vec = Vec::new();
    let mut source = source.take(MAX_UNSIZED_BYTES + 1);
    source.by_ref().take(START_BYTES).read_to_end(&mut vec)?;
    // Text in UTF-16 has single zeros.
    if vec.len() as u64 == START_BYTES && vec.iter().all(|byte| *byte == 0) {
        return Err(InputError::Zeros);
    }
    source.read_to_end(&mut vec)?;
    if vec.len() as u64 > MAX_UNSIZED_BYTES { Err(InputError::Unbounded { limit: MAX_UNSIZED_BYTES }) } else { Ok(vec) }
}

/// Maps `file`, or reads it if it cannot be mapped (a pipe, `/dev/stdin`, an empty file).
fn map_or_read(file: &File) -> Result<Bytes, InputError> {
    match Mapped::new(file) {
        Ok(map) if !map.is_empty() => Ok(Bytes::Mapped(map)),
        _ => Ok(Bytes::Owned(read_unsized(file)?)),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn open(bytes: &[u8]) -> Result<Source, InputError> {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(bytes).unwrap();
        Source::open(file.path())
    }

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut e = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
        e.write_all(bytes).unwrap();
        e.finish().unwrap()
    }

    #[test]
    fn plain_empty_and_compressed_files_are_read() {
        assert_eq!(&*open(b"abc").unwrap(), b"abc");
        assert_eq!(&*open(b"").unwrap(), b"");
        let packed = gzip(b"hello hello hello");
        let source = open(&packed).unwrap();
        assert_eq!(&*source, b"hello hello hello");
        assert_eq!(source.stored_bytes(), packed.len() as u64);
    }

    #[test]
    fn a_reader_has_the_content_and_the_errors_of_a_file() {
        let bomb = gzip(&vec![0u8; 65 << 20]);
        let packed = gzip(b"hello hello hello");
        let two_members = [packed.clone(), gzip(&vec![b'x'; 3 << 20])].concat();
        let page = br#"<html>"base64": "Zm9v"}]</html>"#;
        for bytes in [
            &b""[..],
            b"abc",
            b"\xff\xfea\0b\0",
            &packed,
            &packed[..12],
            &two_members,
            &two_members[..40],
            b"\x28\xb5\x2f\xfd\x00\x58\x41\x00\x00oomscope",
            b"\x28\xb5\x2f\xfd\x00\x58\x41\x00\x00oom",
            b"BZh91",
            page,
            &bomb,
        ] {
            let [from_reader, from_file] =
                [Source::from_reader(io::Cursor::new(bytes), bytes.len() as u64), open(bytes)].map(|source| {
                    source.map(|one| (one.to_vec(), one.stored_bytes())).map_err(|error| error.to_string())
                });
            assert!(from_reader == from_file, "{:?}", &bytes[..bytes.len().min(60)]);
        }
    }

    #[test]
    fn a_file_that_changes_is_an_error() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(&vec![b'.'; 1 << 20]).unwrap();
        let source = Source::open(file.path()).unwrap();
        assert!(source.check_unchanged().is_ok());
        file.as_file().set_len(10).unwrap();
        assert!(matches!(source.check_unchanged(), Err(InputError::Changed)));
        assert_eq!(source.last(), Some(&0), "no signal kills the process");
        assert!(Source::open(file.path()).unwrap().check_unchanged().is_ok());
    }

    #[test]
    fn zstd_is_recognized() {
        // `printf oomscope | zstd --no-check`
        let frame = b"\x28\xb5\x2f\xfd\x00\x58\x41\x00\x00oomscope";
        assert_eq!(&*open(frame).unwrap(), b"oomscope");
        let truncated = open(&frame[..frame.len() - 1]);
        assert!(matches!(truncated, Err(InputError::Compressed { kind: "zstd", .. })));
    }

    #[test]
    fn a_decompression_bomb_is_refused() {
        let zeros = vec![0u8; 65 << 20];
        assert!(matches!(open(&gzip(&zeros)), Err(InputError::DecompressionBomb { .. })));
    }

    #[test]
    fn damaged_gzip_is_an_error() {
        let packed = gzip(b"hello hello hello");
        assert!(matches!(open(&packed[..12]), Err(InputError::Compressed { kind: "gzip", .. })));
    }
}
