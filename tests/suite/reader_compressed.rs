//! Compressed snapshots are read as if they were not; damaged and exploding ones are refused.

use crate::support::{describe, fixtures};
use std::io::Write;

use crate::support::describe::{describe, read};
use crate::support::page::base64_of;
use flate2::Compression;
use flate2::write::GzEncoder;
use oomscope::base::input::{InputError, Source};
use oomscope::snapshot::Snapshot;

fn open(bytes: &[u8]) -> Result<Source, InputError> {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(bytes).unwrap();
    Source::open(file.path())
}

/// The one clean sentence that says why `bytes` cannot be had.
fn refused(bytes: &[u8]) -> String {
    let Err(error) = open(bytes) else { panic!("it was opened") };
    let message = error.to_string();
    assert!(!message.is_empty() && !message.chars().any(char::is_control), "{message:?}");
    assert!(Snapshot::read_compressed(bytes, &|_| ()).is_none());
    message
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

/// One block of a zstd frame: 0 is raw, 1 a byte to repeat.
fn block(kind: u32, size: usize, is_last: bool, content: &[u8]) -> Vec<u8> {
    let header = u32::try_from(size).unwrap() << 3 | kind << 1 | u32::from(is_last);
    [&header.to_le_bytes()[..3], content].concat()
}

/// A zstd frame of raw blocks, by hand: magic number, a header with the size in four bytes, blocks.
fn zstd(bytes: &[u8]) -> Vec<u8> {
    let mut frame = b"\x28\xb5\x2f\xfd\xa0".to_vec();
    frame.extend(u32::try_from(bytes.len()).unwrap().to_le_bytes());
    let mut chunks = bytes.chunks(100_000).peekable();
    while let Some(chunk) = chunks.next() {
        frame.extend(block(0, chunk.len(), chunks.peek().is_none(), chunk));
    }
    frame
}

#[test]
fn compressed_snapshots_say_the_same_as_plain_ones() {
    for name in ["2.15.0-two_devices", "2.3.1-fuzz-roundup"] {
        let plain = fixtures::pickle(name);
        let expected = describe(&read(&plain));
        let (first, second) = plain.split_at(plain.len() / 3);
        let skippable = b"\x5a\x2a\x4d\x18\x05\0\0\0extra";
        for (form, bytes) in [
            ("plain", plain.clone()),
            ("gzip", gzip(&plain)),
            ("gzip in two members", [gzip(first), gzip(second)].concat()),
            ("zstd", zstd(&plain)),
            ("zstd in two frames", [zstd(first), zstd(second)].concat()),
            ("zstd with frames to skip", [&zstd(first)[..], skippable, &zstd(second), skippable].concat()),
        ] {
            let source = open(&bytes).unwrap_or_else(|error| panic!("{form}: {error}"));
            assert!(*source == *plain, "{name} as {form}: {} bytes", source.len());
            assert_eq!(source.stored_bytes(), bytes.len() as u64, "{form}");
            assert_eq!(describe(&read(&source)), expected, "{name} as {form}");
            let streamed = Snapshot::read_compressed(&bytes, &|_| ());
            assert_eq!(
                streamed.as_ref().map(describe),
                (form != "plain").then(|| expected.clone()),
                "{name} as {form}"
            );
        }
    }
}

#[test]
fn compressed_json_is_read_too() {
    let json = br#"{"segments": [], "device_traces": [[], []]}"#;
    for bytes in [gzip(json), zstd(json)] {
        assert_eq!(read(&open(&bytes).unwrap()).traces.len(), 2);
    }
}

#[test]
fn truncated_compressed_files_say_so() {
    let plain = fixtures::pickle("2.1.2-holes-at-oom");
    let level = ruzstd::encoding::CompressionLevel::Fastest;
    let small = ruzstd::encoding::compress_to_vec(&*plain, level);
    for (kind, packed) in [("gzip", gzip(&plain)), ("zstd", zstd(&plain)), ("zstd", small)] {
        for len in (4..packed.len()).step_by(97) {
            let message = refused(&packed[..len]);
            assert!(message.contains(&format!("damaged {kind} data")), "{len}: {message}");
            assert!(kind == "gzip" || message.ends_with(": unexpected end of file"), "{message}");
        }
    }
    let two = [zstd(&plain), zstd(&plain)].concat();
    assert!(refused(&two[..two.len() - 1]).contains("damaged zstd data"));
    let packed = gzip(&plain);
    assert!(refused(&[&packed[..], &packed[..20]].concat()).contains("damaged gzip data"));
}

#[test]
fn damaged_compressed_files_say_so() {
    let mut packed = gzip(&fixtures::pickle("2.1.2-holes-at-oom"));
    // The checksum at the end.
    let at = packed.len() - 8;
    packed[at] ^= 1;
    assert!(refused(&packed).contains("damaged gzip data"));
    assert!(refused(b"\x1f\x8b\x09 no deflate").contains("damaged gzip data"));
    assert!(refused(b"\x28\xb5\x2f\xfd\xff\xff\xff\xff\xff\xff").contains("damaged zstd data"));
    let reserved_block = [b"\x28\xb5\x2f\xfd\xa0\x10\0\0\0", &block(3, 16, true, b"?")[..]].concat();
    assert!(refused(&reserved_block).contains("damaged zstd data"));
    let junk_after = [&zstd(b"\x80\x04N.")[..], b"junk"].concat();
    assert!(refused(&junk_after).contains("damaged zstd data"));
}

#[test]
fn other_compression_is_named() {
    for (start, kind) in [(&b"\xfd7zXZ\0\0"[..], "xz"), (b"BZh91AY", "bzip2")] {
        let message = refused(start);
        assert!(message.contains(&format!("is compressed with {kind}: decompress it first")), "{message}");
    }
}

#[test]
fn bombs_are_refused_before_they_explode() {
    // A hundred mebibytes of zeros.
    let zeros = gzip(&vec![0; 100 << 20]);
    assert!(zeros.len() < 1 << 20);
    let message = refused(&zeros);
    assert!(message.contains("more than 100 times its size"), "{message}");
    // Each block of four bytes is 128 KiB of one byte; the last of a frame ends it.
    let repeated = |blocks: usize| {
        let mut frame = b"\x28\xb5\x2f\xfd\0\x38".to_vec(); // a window of 128 KiB
        (0..blocks).for_each(|i| frame.extend(block(1, 128 << 10, i + 1 == blocks, b"N")));
        frame
    };
    assert_eq!(open(&repeated(3)).unwrap().len(), 3 * (128 << 10));
    for bomb in [repeated(1000), repeated(300).repeat(3), repeated(1).repeat(1000)] {
        let message = refused(&bomb);
        assert!(message.contains("more than 100 times its size"), "{message}");
    }
}

#[test]
fn a_file_packed_twice_is_not_a_pickle() {
    let twice = gzip(&gzip(b"\x80\x04]."));
    let message = describe::refusal(&open(&twice).unwrap());
    assert!(message.contains("compressed twice"), "{message}");
}

#[test]
fn directories_and_missing_files_are_named() {
    let directory = tempfile::tempdir().unwrap();
    let message = Source::open(directory.path()).unwrap_err().to_string();
    assert!(message.contains("is a directory"), "{message}");
    let message = Source::open(&directory.path().join("no.pickle")).unwrap_err().to_string();
    assert!(message.contains("cannot be read"), "{message}");
}

/// pzstd writes a frame first that says how long the next one is.
#[test]
fn a_skippable_frame_may_come_first() {
    for kind in [0x50, 0x5f] {
        let skippable = [&[kind, 0x2a, 0x4d, 0x18, 4, 0, 0, 0][..], &[9, 9, 9, 9]].concat();
        let both = [skippable.clone(), zstd(b"oom"), skippable, zstd(b"scope")].concat();
        assert_eq!(&*open(&both).unwrap(), b"oomscope");
    }
}

/// As `Out-File` of PowerShell writes it.
#[test]
fn json_may_be_utf16_or_have_a_mark() {
    let json = "{\"segments\": [], \"device_traces\": []}";
    let marked = format!("\u{feff}{json}");
    let utf16: Vec<u8> = marked.encode_utf16().flat_map(u16::to_le_bytes).collect();
    for bytes in [marked.clone().into_bytes(), utf16.clone(), gzip(&utf16)] {
        assert_eq!(&*open(&bytes).unwrap(), json.as_bytes());
    }
}

/// As `python -m torch.cuda._memory_viz trace_plot` writes it: in base64, filled up with zeros.
#[test]
fn a_page_of_memory_viz_is_its_pickle() {
    let mut pickle = fixtures::pickle("2.15.0-holes");
    let expected = describe(&read(&pickle));
    pickle.extend(vec![0; 3 - pickle.len() % 3]);
    let encoded = base64_of(&pickle);
    let page = format!(
        "\n<!DOCTYPE html>\n<html>\n<body>\n<script type=\"module\">\nconst local_files = \
         [{{\"name\": \"snapshot.pickle\", \"base64\": \"{encoded}\"}}]\n</script>"
    );
    let snapshot = read(&open(page.as_bytes()).unwrap());
    assert_eq!(describe(&snapshot), expected);
    assert!(snapshot.warnings.to_vec().is_empty(), "{:?}", snapshot.warnings);
}
