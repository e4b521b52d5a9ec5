//! Decompresses zstd, including the many frames that parallel compressors write.

use std::error::Error as _;
use std::io::{self, BufRead, Read};

use ruzstd::decoding::errors::{FrameDecoderError, ReadFrameHeaderError};
use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder};

/// The magic bytes of a frame.
const FRAME: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];
/// The magic bytes of a skippable frame, after a byte from `0x50` to `0x5f`. pzstd writes one first.
const SKIPPABLE: [u8; 3] = [0x2a, 0x4d, 0x18];

pub(super) fn is_zstd(start: &[u8]) -> bool {
    match start {
        [0x50..=0x5f, rest @ ..] => rest.starts_with(&SKIPPABLE),
        _ => start.starts_with(&FRAME),
    }
}

/// The content of all frames, one after the other.
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
                    let one_block = BlockDecodingStrategy::UptoBlocks(1);
                    self.decoder.decode_blocks(&mut self.source, one_block).map_err(|error| to_io_error(&error))?;
                }
                let n = self.decoder.read(out)?;
                if n > 0 || out.is_empty() {
                    return Ok(n);
                }
                self.is_in_frame = false;
                let stored = self.decoder.get_checksum_from_data();
                if stored.is_some() && stored != self.decoder.get_calculated_checksum() {
                    return Err(io::Error::other("its checksum does not match"));
                }
            }
            if self.source.fill_buf()?.is_empty() {
                return Ok(0);
            }
            match self.decoder.init(&mut self.source) {
                Ok(()) => self.is_in_frame = true,
                // A skippable frame; its header has been read.
                Err(FrameDecoderError::ReadFrameHeaderError(ReadFrameHeaderError::SkipFrame { length, .. })) => {
                    let length = u64::from(length);
                    let skipped = io::copy(&mut (&mut self.source).take(length), &mut io::sink())?;
                    if skipped < length {
                        return Err(io::ErrorKind::UnexpectedEof.into());
                    }
                }
                Err(error) => return Err(to_io_error(&error)),
            }
        }
    }
}

/// A truncated frame becomes `UnexpectedEof`, wherever it ends; the decoder reports it in several ways. Other errors have
/// names of the decoder's own types.
fn to_io_error(error: &FrameDecoderError) -> io::Error {
    let causes = std::iter::successors(error.source(), |&cause| cause.source());
    if causes
        .filter_map(|cause| cause.downcast_ref())
        .any(|cause: &io::Error| cause.kind() == io::ErrorKind::UnexpectedEof)
    {
        return io::ErrorKind::UnexpectedEof.into();
    }
    io::Error::other("a frame cannot be decoded")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_has_the_checksum_of_its_frame() {
        // `printf oomscope | zstd`
        let mut frame = [&b"\x28\xb5\x2f\xfd\x04\x58\x41\x00\x00"[..], b"oomscope", b"\x97\xb5\xd9\x69"].concat();
        let mut content = Vec::new();
        ZstdFrames::new(&frame.repeat(2)[..]).read_to_end(&mut content).unwrap();
        assert_eq!(content, b"oomscopeoomscope");
        frame[12] ^= 1;
        assert!(ZstdFrames::new(&frame[..]).read_to_end(&mut content).is_err());
    }
}
