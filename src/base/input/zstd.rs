//! zstd, as one program or many at once write it.

use std::error::Error as _;
use std::io::{self, BufRead, Read};

use ruzstd::decoding::errors::{FrameDecoderError, ReadFrameHeaderError};
use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder};

/// How a frame begins.
const FRAME: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];
/// How a frame meant for other programs begins, after a byte from `0x50` to `0x5f`: pzstd writes one first.
const SKIPPABLE: [u8; 3] = [0x2a, 0x4d, 0x18];

/// Whether `start` is that of a zstd file.
pub(super) fn is_zstd(start: &[u8]) -> bool {
    match start {
        [0x50..=0x5f, rest @ ..] => rest.starts_with(&SKIPPABLE),
        _ => start.starts_with(&FRAME),
    }
}

/// The content of all zstd frames, one after the other: parallel compressors write many.
pub(super) struct ZstdFrames<R> {
    source: R,
    decoder: FrameDecoder,
    is_in_frame: bool,
}

impl<R: BufRead> ZstdFrames<R> {
    pub(super) fn new(source: R) -> Self {
        Self { source, decoder: FrameDecoder::new(), is_in_frame: false }
    }
}

impl<R: BufRead> Read for ZstdFrames<R> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        loop {
            if self.is_in_frame {
                while self.decoder.can_collect() == 0 && !self.decoder.is_finished() {
                    let one = BlockDecodingStrategy::UptoBlocks(1);
                    let decoded = self.decoder.decode_blocks(&mut self.source, one);
                    decoded.map_err(to_io_error)?;
                }
                let n = self.decoder.read(out)?;
                if n > 0 || out.is_empty() {
                    return Ok(n);
                }
                self.is_in_frame = false;
            }
            if self.source.fill_buf()?.is_empty() {
                return Ok(0);
            }
            match self.decoder.init(&mut self.source) {
                Ok(()) => self.is_in_frame = true,
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
                Err(error) => return Err(to_io_error(error)),
            }
        }
    }
}

/// What is wrong with a zstd frame. One that is cut short is told from others in one way, wherever the cut is.
fn to_io_error(error: FrameDecoderError) -> io::Error {
    let causes = std::iter::successors(error.source(), |&cause| cause.source());
    let cut = |cause: &io::Error| cause.kind() == io::ErrorKind::UnexpectedEof;
    if causes.filter_map(|cause| cause.downcast_ref()).any(cut) {
        return io::ErrorKind::UnexpectedEof.into();
    }
    io::Error::other(error)
}
