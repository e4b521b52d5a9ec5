//! Bytes of a file or of standard input, decompressed when they are gzip or zstd.
//!
//! A [`Source`] has all bytes at once: plain files are mapped, not read, so that a 2 GB snapshot costs no
//! private memory; compressed input and standard input are held in memory. [`decompressed`] has them one
//! after the other.
#![allow(unsafe_code)] // the one memory map, see `map`

use std::error::Error as _;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::ops::Deref;
use std::path::Path;

use memmap2::Mmap;
use ruzstd::decoding::errors::{FrameDecoderError, ReadFrameHeaderError};
use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder};
use thiserror::Error;

use crate::units::{MIB, size};

/// Decompressed bytes allowed for each compressed byte; real snapshots shrink 5 to 40 times.
const MAX_EXPANSION: u64 = 100;
/// Decompressed size that is always allowed.
const MIN_LIMIT: u64 = 64 * MIB;

const GZIP: [u8; 2] = [0x1f, 0x8b];
const ZSTD: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];

/// Other compression, known to be named: how a file begins, its name, and what undoes it.
const OTHERS: [(&[u8], &str, &str); 2] =
    [(b"\xfd7zXZ\0", "xz", "xz -d"), (b"BZh", "bzip2", "bzip2 -d")];

/// Why the bytes could not be had. The caller adds the name of the file.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum InputError {
    /// The file cannot be opened, mapped or read.
    #[error("cannot be read: {0}")]
    Io(#[from] io::Error),
    /// A directory where a file was asked for.
    #[error("is a directory, not a snapshot")]
    Directory,
    /// Compressed in a way that is not read here.
    #[error("is compressed with {0}: decompress it first ({1})")]
    OtherCompression(&'static str, &'static str),
    /// The compressed data is broken.
    #[error("is damaged {kind} data: {source}")]
    Compressed {
        /// `gzip` or `zstd`.
        kind: &'static str,
        /// What the decompressor said.
        source: io::Error,
    },
    /// The compressed data grows beyond what a snapshot does.
    #[error(
        "grows beyond {} when decompressed, more than {MAX_EXPANSION} times its size: no snapshot does; if it is one, decompress it first",
        size(*limit)
    )]
    Bomb {
        /// Decompressed bytes that were allowed.
        limit: u64,
    },
}

/// The whole content of one input.
#[derive(Debug)]
pub struct Source {
    bytes: Bytes,
    stored_bytes: u64,
}

#[derive(Debug)]
enum Bytes {
    Mapped(Mmap),
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
    /// Opens `path`; `-` is standard input.
    pub fn open(path: &Path) -> Result<Self, InputError> {
        let raw = if path.as_os_str() == "-" {
            let mut vec = Vec::new();
            io::stdin().lock().read_to_end(&mut vec)?;
            Bytes::Owned(vec)
        } else {
            let file = File::open(path)?;
            if file.metadata()?.is_dir() {
                return Err(InputError::Directory);
            }
            map(&file)?
        };
        Self { stored_bytes: 0, bytes: raw }.decompressed()
    }

    /// Bytes as stored, before decompression.
    pub fn stored_bytes(&self) -> u64 {
        self.stored_bytes
    }

    fn decompressed(mut self) -> Result<Self, InputError> {
        self.stored_bytes = self.len() as u64;
        let limit = MIN_LIMIT.max(self.stored_bytes.saturating_mul(MAX_EXPANSION));
        let inflated = if self.starts_with(&GZIP) {
            inflate("gzip", flate2::read::MultiGzDecoder::new(&*self), limit)?
        } else if self.starts_with(&ZSTD) {
            inflate("zstd", ZstdFrames::new(&*self), limit)?
        } else {
            return other_compression(&self).map_or(Ok(self), Err);
        };
        self.bytes = Bytes::Owned(inflated);
        Ok(self)
    }
}

fn other_compression(start: &[u8]) -> Option<InputError> {
    let (_, kind, remedy) = OTHERS.iter().find(|(magic, ..)| start.starts_with(magic))?;
    Some(InputError::OtherCompression(kind, remedy))
}

/// `source` decompressed while it is read, when it is gzip or zstd: for text of which little is kept.
///
/// # Errors
/// Those of `source`; compression that is not read here.
pub fn decompressed<'a>(mut source: impl BufRead + 'a) -> io::Result<Box<dyn BufRead + 'a>> {
    let start = source.fill_buf()?;
    Ok(if start.starts_with(&GZIP) {
        Box::new(BufReader::new(flate2::bufread::MultiGzDecoder::new(source)))
    } else if start.starts_with(&ZSTD) {
        Box::new(BufReader::new(ZstdFrames::new(source)))
    } else if let Some(error) = other_compression(start) {
        return Err(io::Error::other(error));
    } else {
        Box::new(source)
    })
}

/// The content of all zstd frames, one after the other: parallel compressors write many.
struct ZstdFrames<R> {
    source: R,
    decoder: FrameDecoder,
    in_frame: bool,
}

impl<R: BufRead> ZstdFrames<R> {
    fn new(source: R) -> Self {
        Self { source, decoder: FrameDecoder::new(), in_frame: false }
    }
}

impl<R: BufRead> Read for ZstdFrames<R> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        loop {
            if self.in_frame {
                while self.decoder.can_collect() == 0 && !self.decoder.is_finished() {
                    let one = BlockDecodingStrategy::UptoBlocks(1);
                    let decoded = self.decoder.decode_blocks(&mut self.source, one);
                    decoded.map_err(broken)?;
                }
                let n = self.decoder.read(out)?;
                if n > 0 || out.is_empty() {
                    return Ok(n);
                }
                self.in_frame = false;
            }
            if self.source.fill_buf()?.is_empty() {
                return Ok(0);
            }
            match self.decoder.init(&mut self.source) {
                Ok(()) => self.in_frame = true,
                // Meant for other programs; its header has been read.
                Err(FrameDecoderError::ReadFrameHeaderError(ReadFrameHeaderError::SkipFrame {
                    length,
                    ..
                })) => {
                    let length = u64::from(length);
                    let skipped = io::copy(&mut (&mut self.source).take(length), &mut io::sink())?;
                    if skipped < length {
                        return Err(io::ErrorKind::UnexpectedEof.into());
                    }
                }
                Err(error) => return Err(broken(error)),
            }
        }
    }
}

/// What is wrong with a zstd frame. One that is cut short is told from others in one way, wherever the cut is.
fn broken(error: FrameDecoderError) -> io::Error {
    let causes = std::iter::successors(error.source(), |&cause| cause.source());
    let cut = |cause: &io::Error| cause.kind() == io::ErrorKind::UnexpectedEof;
    if causes.filter_map(|cause| cause.downcast_ref()).any(cut) {
        return io::ErrorKind::UnexpectedEof.into();
    }
    io::Error::other(error)
}

fn inflate(kind: &'static str, decoder: impl Read, limit: u64) -> Result<Vec<u8>, InputError> {
    let mut out = Vec::new();
    decoder
        .take(limit + 1)
        .read_to_end(&mut out)
        .map_err(|source| InputError::Compressed { kind, source })?;
    if out.len() as u64 > limit { Err(InputError::Bomb { limit }) } else { Ok(out) }
}

/// Maps `file`, or reads it where it cannot be mapped (a pipe, `/dev/stdin`, an empty file).
fn map(file: &File) -> Result<Bytes, InputError> {
    // SAFETY: the map is read-only and lives as long as the `Source`. Another process that shortens
    // the file meanwhile makes the kernel stop this one (SIGBUS), as with any tool that maps its
    // input; it cannot make it read wrong memory.
    match unsafe { Mmap::map(file) } {
        Ok(map) if !map.is_empty() => Ok(Bytes::Mapped(map)),
        _ => {
            let mut vec = Vec::new();
            (&*file).read_to_end(&mut vec)?;
            Ok(Bytes::Owned(vec))
        }
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
    fn plain_empty_and_compressed() {
        assert_eq!(&*open(b"abc").unwrap(), b"abc");
        assert_eq!(&*open(b"").unwrap(), b"");
        let packed = gzip(b"hello hello hello");
        let source = open(&packed).unwrap();
        assert_eq!(&*source, b"hello hello hello");
        assert_eq!(source.stored_bytes(), packed.len() as u64);
    }

    #[test]
    fn zstd_is_recognised() {
        // `printf oomscope | zstd --no-check`
        let frame = b"\x28\xb5\x2f\xfd\x00\x58\x41\x00\x00oomscope";
        assert_eq!(&*open(frame).unwrap(), b"oomscope");
        let cut = open(&frame[..frame.len() - 1]);
        assert!(matches!(cut, Err(InputError::Compressed { kind: "zstd", .. })));
    }

    #[test]
    fn a_bomb_is_refused() {
        let zeros = vec![0u8; 65 << 20];
        assert!(matches!(open(&gzip(&zeros)), Err(InputError::Bomb { .. })));
    }

    #[test]
    fn damaged_gzip_says_so() {
        let mut packed = gzip(b"hello hello hello");
        packed.truncate(12);
        assert!(matches!(open(&packed), Err(InputError::Compressed { kind: "gzip", .. })));
    }
}
