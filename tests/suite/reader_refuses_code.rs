//! Nothing in a pickle is ever imported, called or built: what asks for it is refused by name.

use crate::support::describe::refusal;
use crate::support::pickle_bytes::{Py, Script};
use crate::support::pickle_tree::Tree;
use crate::support::sample;

#[test]
fn no_way_to_call_a_function_leaves_a_trace() {
    let directory = tempfile::tempdir().unwrap();
    let marker = directory.path().join("marker");
    let command = format!("touch '{}'", marker.display());
    let call = |load: Script| load.op(b'(').text(&command).raw(b"tR");
    let os_system = b"cos\nsystem\n";
    for (name, script, asks_for) in [
        ("GLOBAL and REDUCE", call(Script::default().raw(os_system)), "os.system"),
        ("GLOBAL alone", Script::default().raw(os_system), "os.system"),
        ("STACK_GLOBAL", call(Script::default().text("os").text("system").op(0x93)), "os.system"),
        (
            "STACK_GLOBAL of memo entries",
            call(Script::default().text("os").op(0x94).raw(b"0h\0").text("system").op(0x93)),
            "os.system",
        ),
        ("STACK_GLOBAL of no texts", call(Script::default().int(1).int(2).op(0x93)), "?.?"),
        ("INST", Script::default().op(b'(').text(&command).raw(b"ios\nsystem\n"), "os.system"),
        ("OBJ", Script::default().op(b'(').raw(os_system).text(&command).op(b'o'), "os.system"),
        ("OBJ of anything", Script::default().raw(b"(NNo"), "an object"),
        ("NEWOBJ", Script::default().raw(os_system).raw(b")\x81"), "os.system"),
        ("NEWOBJ of anything", Script::default().raw(b"N)\x81"), "an object"),
        ("NEWOBJ_EX", Script::default().raw(b"N)}\x92"), "an object"),
        ("BUILD", Script::default().raw(b"}}b"), "an object"),
        ("BUILD of a tagged list", Script::default().raw(b"ctorch.jit._pickle\nrestore_type_tag\n}b"), "an object"),
        ("REDUCE of no function", Script::default().text(&command).raw(b")R"), "a call"),
        ("EXT1", call(Script::default().raw(b"\x82\x01")), "a registered extension"),
        ("EXT2", call(Script::default().raw(b"\x83\x01\x01")), "a registered extension"),
        ("EXT4", call(Script::default().raw(b"\x84\x01\0\0\0")), "a registered extension"),
        ("PERSID", Script::default().raw(b"Pmy-id\n"), "persistent id my-id"),
        ("BINPERSID", Script::default().raw(b"NQ"), "a persistent id"),
        ("NEXT_BUFFER", Script::default().op(0x97), "an out-of-band buffer"),
        ("READONLY_BUFFER", Script::default().raw(b"N\x98"), "an out-of-band buffer"),
        ("builtins", call(Script::default().raw(b"cbuiltins\neval\n")), "builtins.eval"),
        (
            "a name in the harmless module",
            call(Script::default().raw(b"ctorch.jit._pickle\nbuild_intlist\n")),
            "torch.jit._pickle.build_intlist",
        ),
        (
            "the harmless name in another module",
            call(Script::default().raw(b"cos\nrestore_type_tag\n")),
            "os.restore_type_tag",
        ),
        (
            "inside a harmless call",
            Script::default()
                .raw(b"ctorch.jit._pickle\nrestore_type_tag\n")
                .raw(os_system)
                .op(b'(')
                .text(&command)
                .raw(b"tR")
                .text("x")
                .raw(b"\x86R"),
            "os.system",
        ),
    ] {
        let asks = format!("it asks Python to load '{asks_for}'");
        for opcodes in
            [script.clone().0, sample::snapshot().with("x", Py::Raw(script.clone().0)).pickle(4)[2..].to_vec()]
        {
            for protocol in [&b"\x80\x02"[..], b"\x80\x04", b""] {
                let pickle = [protocol, &opcodes, b"."].concat();
                let message = refusal(&pickle);
                assert!(message.contains(&asks), "{name}: {message}");
                assert!(message.contains("refused, nothing was executed"), "{name}: {message}");
                let message = Tree::read(&pickle).unwrap_err().to_string();
                assert!(message.contains(&asks), "{name}: {message}");
            }
        }
        assert!(!marker.exists(), "{name} was run");
    }
    // The marker would have been seen.
    std::fs::write(&marker, "").unwrap();
    assert!(marker.exists());
}

#[test]
fn the_type_tag_alone_is_nothing() {
    // The function as a value, or called with something odd, harms nobody and means nothing.
    let tag = b"ctorch.jit._pickle\nrestore_type_tag\n";
    for (opcodes, json) in [
        (&b""[..], "null"),
        (b"K\x05R", "5"),
        (b"K\x05K\x06\x86R", "5"),
        (b"(K\x05K\x06tR", "5"),
        (b"K\x05\x85R", r#"{"tuple":[5]}"#),
        (b")R", r#"{"tuple":[]}"#),
    ] {
        let pickle = Script::default().raw(tag).raw(opcodes).stop();
        assert_eq!(Tree::read(&pickle).unwrap().to_json(100).unwrap(), json);
    }
}
