use super::*;

#[test]
fn names_are_read_as_they_were_written() {
    for index in [0, 1, 1023] {
        for sequence in [0, 1, SEQUENCE_MASK] {
            let name = Name { index, sequence };
            assert_eq!(Name::of(name.installed()), name);
            assert!(is_name(name.installed()) && name.installed() & CONDITIONAL == 0);
            let conditional = name.conditional(7, 127, 63);
            assert_eq!(
                (Name::of(conditional), conditional_word(conditional)),
                (name, 7)
            );
            assert!(
                name.is_conditional_in(conditional) && !name.is_conditional_in(name.installed())
            );
            assert_eq!(conditional & DIRTY, 0, "a name is never dirty");
        }
    }
}
