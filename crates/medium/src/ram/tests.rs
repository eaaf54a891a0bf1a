use super::*;
use crate::Guard;

#[test]
fn what_was_given_back_reads_as_zeros_when_it_is_there_again() {
    let mut ram = Ram::new(1 << 30).unwrap();
    let length = (4 << 20) + 4096;
    for kept in [0, 64, 4096, 5000, 2 << 20, length - 8] {
        ram.grow(length).unwrap();
        let guard = Guard::new(&ram);
        let words = guard.words(0, length as usize / 8).unwrap();
        let first = (words.len() - 8..words.len()).chain([0, kept as usize / 8, 700, 1000]);
        first.for_each(|word| words[word].store(&guard, 7));
        drop(guard);
        ram.shrink(kept).unwrap();
        assert_eq!(ram.extent().length(), kept);
        ram.grow(length).unwrap();
        let guard = Guard::new(&ram);
        let words = guard.words(0, length as usize / 8).unwrap();
        let (before, after) = words.split_at(kept as usize / 8);
        assert!(after.iter().all(|word| word.load(&guard) == 0), "{kept} bytes kept");
        assert!(before.first().is_none_or(|word| word.load(&guard) == 7), "{kept} bytes kept");
    }
}
