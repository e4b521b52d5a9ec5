//! Every form of value is written as CPython's own pickler writes it, byte for byte.

use std::io::{self, Write};

use crate::support::pickle_tree::{self, Tree};
use crate::support::python::{has_python, python};
use oomscope::snapshot::pickle::PickleWriter;

/// The value of [`write_forms`], made and dumped by CPython.
const FORMS: &str = r#"
import pickle, sys
shared = ["shared"]
integers = [0, 255, 256, 65535, 65536, 2**31 - 1, 2**31, 2**39 - 1, 2**39, 2**63 - 1, -1, -2**31,
    -2**31 - 1, -2**39, -2**39 - 1, -2**63, 2**63, 2**64 - 1]
value = [None, True, False, 0.5, -1.5e300, (3, 2**64 - 1), integers, shared, shared]
value += ["".join(["x"] * length) for length in [0, 255, 256, 65535, 65536, 70000]]
for size in [0, 1, 2, 999, 1001, 2500]:
    value.append([number for number in range(size)])
    value.append({"".join(["key ", str(number)]): number for number in range(size)})
value.append({"a": [], "b": {}})
with open("forms", "rb") as file:
    ours = file.read()
if pickle.loads(ours) != value:
    sys.exit("CPython loads something else")
theirs = pickle.dumps(value, protocol=4)
if theirs != ours:
    at = next(i for i, (a, b) in enumerate(zip(ours, theirs)) if a != b)
    sys.exit(f"different from byte {at} on: {ours[at-20:at+20]!r} instead of {theirs[at-20:at+20]!r}")
print(len(theirs))
"#;

fn write_forms(out: &mut dyn Write) -> io::Result<u64> {
    const INTEGERS: [i64; 16] = [
        0,
        255,
        256,
        65_535,
        65_536,
        (1 << 31) - 1,
        1 << 31,
        (1 << 39) - 1,
        1 << 39,
        i64::MAX,
        -1,
        -(1 << 31),
        -(1 << 31) - 1,
        -(1 << 39),
        -(1 << 39) - 1,
        i64::MIN,
    ];
    const LENGTHS: [usize; 6] = [0, 255, 256, 65_535, 65_536, 70_000];
    const SIZES: [usize; 6] = [0, 1, 2, 999, 1001, 2500];
    let mut pickle = PickleWriter::new(out)?;
    let total = 9 + LENGTHS.len() + 2 * SIZES.len() + 1;
    let mut index = 0;
    let mut shared = 0;
    pickle.begin_list()?;
    while index < total {
        pickle.begin_item(index, total);
        match index {
            0 => pickle.write_none()?,
            1 | 2 => pickle.write_bool(index == 1)?,
            3 => pickle.write_float(0.5)?,
            4 => pickle.write_float(-1.5e300)?,
            5 => pickle.write_pair(3, u64::MAX)?,
            6 => {
                let count = INTEGERS.len() + 2;
                pickle.begin_list()?;
                for at in 0..count {
                    pickle.begin_item(at, count);
                    match INTEGERS.get(at) {
                        Some(integer) => pickle.write_int(*integer)?,
                        None => pickle.write_unsigned([1 << 63, u64::MAX][at - INTEGERS.len()])?,
                    }
                    pickle.end_list_item(at, count);
                }
            }
            7 => {
                shared = pickle.begin_list()?;
                pickle.begin_item(0, 1);
                pickle.write_interned("shared")?;
                pickle.end_list_item(0, 1);
            }
            8 => pickle.write_reference(shared)?,
            9..15 => drop(pickle.write_text(&"x".repeat(LENGTHS[index - 9]))?),
            15..27 => {
                let size = SIZES[(index - 15) / 2];
                let is_dict = index % 2 == 0;
                if is_dict {
                    pickle.begin_dict()?
                } else {
                    pickle.begin_list()?
                };
                for at in 0..size {
                    pickle.begin_item(at, size);
                    if is_dict {
                        pickle.write_text(&format!("key {at}"))?;
                        pickle.write_unsigned(at as u64)?;
                        pickle.end_dict_item(at, size);
                    } else {
                        pickle.write_unsigned(at as u64)?;
                        pickle.end_list_item(at, size);
                    }
                }
            }
            _ => {
                pickle.begin_small_dict()?;
                pickle.write_interned("a")?;
                pickle.begin_list()?;
                pickle.write_interned("b")?;
                pickle.begin_dict()?;
                pickle.end_small_dict();
            }
        }
        pickle.end_list_item(index, total);
        index += 1;
    }
    pickle.finish()
}

#[test]
fn every_form_is_written_as_cpython_writes_it() {
    let mut bytes = Vec::new();
    let length = write_forms(&mut bytes).unwrap();
    assert_eq!(length, bytes.len() as u64);
    let tree = Tree::read(&bytes).unwrap();
    let json = tree.to_json(usize::MAX).unwrap();
    assert!(json.contains("\"key 2499\""), "{} characters", json.len());
    if has_python() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("forms"), &bytes).unwrap();
        assert_eq!(python(FORMS, directory.path()), length.to_string());
    }
}

#[test]
fn wide_integers_print_in_decimal() {
    assert_eq!(pickle_tree::decimal(&(-1i128).to_le_bytes()), "-1");
    assert_eq!(pickle_tree::decimal(&i128::MIN.to_le_bytes()), i128::MIN.to_string());
    assert_eq!(pickle_tree::decimal(&(u128::MAX / 3).to_le_bytes()), (u128::MAX / 3).to_string());
    assert_eq!(pickle_tree::decimal(&(-1_000_000_000_000_000_000i128).to_le_bytes()), "-1000000000000000000");
    assert_eq!(pickle_tree::decimal(&[0; 9]), "0");
    assert_eq!(pickle_tree::decimal(&[0, 0x80]), "-32768");
}
