//! The words for categories of memory.

use crate::study::attribution::{Category, Confidence};

/// The words of a category on a page.
pub(crate) fn category_label(category: Category) -> String {
    match category {
        Category::KvCache => "KV cache".to_owned(),
        category => category.word().replace('-', " "),
    }
}

/// `activations`, `activations?` if that is a guess.
pub(crate) fn guessed_label(category: Category, confidence: Confidence) -> String {
    let is_guess = confidence == Confidence::Low && category != Category::Other;
    format!("{}{}", category_label(category), if is_guess { "?" } else { "" })
}
