//! Names with their indexes folded, so that the items of a list share a row.

/// `name` with `*` for every index: `blocks[*].weight` for `blocks[3].weight`, `state[blocks.*.weight]` for
/// `state[blocks.3.weight]`. Below an index keys are folded, too: `best[*][*]` for `best[3]['head.bias']`.
pub fn fold_indexes(name: &str) -> String {
    let mut rest = fold_numbers(name);
    let Some(first_item) = rest.find("[*]") else { return rest };
    let mut below = rest.split_off(first_item);
    while let Some(start) = below.find("['") {
        let Some(end) = below.get(start..).and_then(|key| key.find("']")) else { break };
        below.replace_range(start..start + end + 2, "[*]");
    }
    rest + &below
}

fn fold_numbers(name: &str) -> String {
    let mut folded = String::with_capacity(name.len());
    for part in name.split_inclusive(['.', '[', ']']) {
        let (word, end) = match part.char_indices().next_back() {
            Some((at, '.' | '[' | ']')) => part.split_at(at),
            _ => (part, ""),
        };
        let is_index = !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_digit());
        folded.push_str(if is_index { "*" } else { word });
        folded.push_str(end);
    }
    folded
}

#[cfg(test)]
mod tests {
    use super::fold_indexes;

    #[test]
    fn only_whole_components_are_indexes() {
        for (name, folded) in [
            ("trainer.history[17]", "trainer.history[*]"),
            ("model.blocks[3].up.weight", "model.blocks[*].up.weight"),
            ("opt.state[blocks.3.up.weight].exp_avg", "opt.state[blocks.*.up.weight].exp_avg"),
            ("opt.state[0.weight].step", "opt.state[*.weight].step"),
            ("a[0][1]", "a[*][*]"),
            ("layer1.conv2", "layer1.conv2"),
            ("cache['k1']", "cache['k1']"),
            ("best[3]['blocks.0.up.weight']", "best[*][*]"),
            ("a[1]['x", "a[*]['x"),
            ("é[1]", "é[*]"),
            ("", ""),
        ] {
            assert_eq!(fold_indexes(name), folded);
        }
    }
}
