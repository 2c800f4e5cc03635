//! Which of the known words somebody meant who wrote another.

/// The word of `known` that is most like `written`. None when none is like it: at most a third of the letters may differ.
pub(super) fn nearest<'a>(written: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let letters = |word: &str| word.to_lowercase().chars().collect::<Vec<_>>();
    let wanted = letters(written);
    let (distance, word) = known.map(|word| (distance(&wanted, &letters(word)), word)).min()?;
    (distance * 3 <= wanted.len().max(word.chars().count())).then_some(word)
}

/// How many letters must be put in, left out or replaced to make one word of the other.
fn distance(a: &[char], b: &[char]) -> usize {
    // One row of the table: what the beginning of `a` so far costs against each beginning of `b`.
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, letter) in a.iter().enumerate() {
        let mut before = i;
        let mut left = i + 1;
        for (cell, other) in row.iter_mut().skip(1).zip(b) {
            let best = (before + usize::from(letter != other)).min(left + 1).min(*cell + 1);
            before = std::mem::replace(cell, best);
            left = best;
        }
        if let Some(first) = row.first_mut() {
            *first = i + 1;
        }
    }
    row.last().copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn between(a: &str, b: &str) -> usize {
        distance(&a.chars().collect::<Vec<_>>(), &b.chars().collect::<Vec<_>>())
    }

    #[test]
    fn counts_letters() {
        for (a, b, letters) in
            [("", "", 0), ("", "abc", 3), ("abc", "", 3), ("kitten", "sitting", 3), ("flaw", "lawn", 2)]
        {
            assert_eq!(between(a, b), letters, "{a} {b}");
        }
    }

    #[test]
    fn finds_what_was_meant_and_nothing_else() {
        let known = ["listenPort", "brokerName", "brokerClusterName"];
        let nearest = |written| nearest(written, known.into_iter());
        assert_eq!(nearest("listenport"), Some("listenPort"));
        assert_eq!(nearest("brokerNam"), Some("brokerName"));
        assert_eq!(nearest("brokerClusterNames"), Some("brokerClusterName"));
        assert_eq!(nearest("storePathRootDir"), None);
        assert_eq!(nearest(""), None);
    }
}
