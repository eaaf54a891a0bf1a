//! Trees remember their types: opens with others, adoption, versions.

use everleaf::{
    Batch, EncodedLike, EncodedValue, Encoding, Encodings, Engine, ErrorKind, Key, NotEncodable,
    Options, Result, Store, TreeOptions, View,
};

#[test]
fn bytes_that_are_of_another_type_are_told() -> Result<()> {
    let store = Store::in_memory()?;
    let names = encodings("u64", "u32");
    // The caller is trusted to encode what it writes.
    let bytes = store.encoded_tree("t", TreeOptions::RECORDS, &names)?;
    bytes.put("not a number", "x")?;
    let numbers = store.typed::<u64, u32>("t")?;
    let error = numbers.first().unwrap_err();
    assert!(
        matches!(error.kind(), ErrorKind::NotOfType { what: "key", .. }),
        "{error}"
    );
    assert!(
        error.to_string().contains("tree \"t\"") && error.to_string().contains("u64"),
        "{error}"
    );
    // A range goes on behind such an entry.
    bytes.put(7_u64.to_be_bytes(), "y")?;
    let error = numbers.get(&7).unwrap_err();
    assert!(
        matches!(error.kind(), ErrorKind::NotOfType { what: "value", .. }),
        "{error}"
    );
    bytes.put(7_u64.to_be_bytes(), 1_u32.to_be_bytes())?;
    let found: Vec<_> = numbers.iter().collect();
    assert!(found[0].is_ok() && found[1].is_err() && found.len() == 2);
    Ok(())
}

fn encodings(key: &str, value: &str) -> Encodings {
    Encodings {
        key: key.to_owned(),
        value: value.to_owned(),
    }
}

#[track_caller]
fn expect_mismatch<T>(opened: Result<T>, found: &str, wanted: &str) {
    let Err(error) = opened else {
        panic!("a tree of {found} was opened as one of {wanted}");
    };
    assert!(
        matches!(error.kind(), ErrorKind::TypeMismatch { .. }),
        "{error}"
    );
    let both = format!("holds {found}, not {wanted};");
    assert!(error.to_string().contains(&both), "{error}");
}

/// Once each of these opens succeeded, and a `put` poisoned the tree.
#[test]
fn a_tree_opens_with_its_own_types_only() -> Result<()> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.pool");
    let mut store = Store::open(&path)?;
    for engine in Engine::ALL {
        let kind = TreeOptions {
            engine: *engine,
            ..TreeOptions::RECORDS
        };
        let names = store.typed_with::<u64, String>(engine.name(), kind)?;
        names.put(&7, "ada")?;
    }
    store.tree("bytes")?.put("key", "value")?;
    let others = |store: &Store| -> Result<()> {
        for engine in Engine::ALL {
            let name = engine.name();
            expect_mismatch(
                store.typed::<String, u64>(name),
                "u64 -> text",
                "text -> u64",
            );
            expect_mismatch(
                store.typed::<i64, String>(name),
                "u64 -> text",
                "i64 -> text",
            );
            let bytes = store.tree(name)?;
            expect_mismatch(bytes.typed::<u64, Vec<u8>>(), "u64 -> text", "u64 -> bytes");
            assert_eq!(bytes.encodings(), Some(&encodings("u64", "text")));
            let names = store.typed::<u64, String>(name)?;
            assert_eq!(names.first()?, Some((7, "ada".to_owned())));
        }
        expect_mismatch(
            store.typed::<String, String>("bytes"),
            "byte strings",
            "text -> text",
        );
        let trees = store.trees()?;
        let of_bytes = trees.iter().filter(|tree| tree.encodings.is_none());
        assert_eq!(of_bytes.count(), 1);
        Ok(())
    };
    others(&store)?;
    store.close()?;
    store = Store::open(&path)?;
    others(&store)?;
    store.close()?;
    others(&Options::new().read_only(true).open(&path)?)
}

/// The forms in which a tree takes its keys and values have its encodings. What it must not take is
/// in the docs of the trait, as code that does not compile.
#[test]
fn forms_that_are_taken_have_the_encodings_of_the_tree() {
    #[track_caller]
    fn expect<K, Q>(key: &K, form: &Q)
    where
        K: Key + EncodedLike<Q>,
        Q: Key + ?Sized,
    {
        assert_eq!(K::encoding(), Q::encoding());
        assert_eq!(super::bytes(key), super::bytes(form));
    }

    expect(&"ada".to_owned(), "ada");
    expect(&b"ada".to_vec(), b"ada".as_slice());
    expect(&b"ada".to_vec(), &b"ada".to_vec());
    expect(b"ada", b"ada");
    expect(&("ada".to_owned(), 7), &("ada".to_owned(), 7));
}

/// Each write of bytes to a typed tree is refused, and changes nothing.
#[test]
fn a_typed_tree_is_only_read_as_bytes() -> Result<()> {
    let store = Store::in_memory()?;
    let scores = store.typed::<String, u32>("scores")?;
    scores.put("ada", &7)?;
    let other = store.tree("other")?;
    let ada = 7_u32.to_be_bytes();
    let ada = ada.as_slice();
    for bytes in [store.tree("scores")?, scores.as_tree().clone()] {
        let mut put = Batch::new();
        put.put(&bytes, "bob", "x");
        let mut remove = Batch::new();
        remove.put(&other, "key", "value").remove(&bytes, "ada");
        let pending = bytes.pending();
        let refused = [
            bytes.put("bob", "x").err(),
            bytes.insert("bob", "x").err(),
            bytes.update("ada", "x").err(),
            bytes.remove("ada").err(),
            bytes.replace("ada", "x").err(),
            bytes.take("ada").err(),
            bytes.fetch_update("ada", |_| Some("x")).err(),
            bytes.compare_exchange("ada", Some(ada), None).err(),
            bytes.pop_first().err(),
            bytes.pop_last().err(),
            bytes.remove_range(..).err(),
            bytes.clear().err(),
            bytes.bulk_load([("bob", "x")], 1.0).err(),
            pending.put("bob", "x").err(),
            pending.remove("ada").err(),
            pending.take("ada").err(),
            store.write(&put).err(),
            store.write(&remove).err(),
            store.write_pending(&remove).err(),
            store.transaction(|tx| tx.put(&bytes, "bob", "x")).err(),
            store.transaction(|tx| tx.remove(&bytes, "ada")).err(),
        ];
        for (number, error) in refused.into_iter().enumerate() {
            let error = error.unwrap_or_else(|| panic!("write {number} was not refused"));
            assert!(
                matches!(error.kind(), ErrorKind::TypedTree { name, .. } if name == "scores"),
                "{number}: {error}"
            );
            let text = error.to_string();
            assert!(text.contains("text -> u32"), "{text}");
            assert!(text.contains("Store::adopt_as_bytes"), "{text}");
        }
        // It is read as before, also by the views and the conditions of others.
        assert_eq!(bytes.get("ada")?.as_deref(), Some(ada));
        assert_eq!(bytes.iter().count(), 1);
        let snapshot = store.snapshot()?;
        assert_eq!(snapshot.get(&bytes, "ada")?.as_deref(), Some(ada));
        let mut batch = Batch::new();
        batch.expect(&bytes, "ada", Some(ada));
        batch.put(&scores, "ada", &7_u32);
        store.write(&batch)?;
        assert!(bytes.check()?.is_empty());
    }
    assert_eq!(other.len()?, 0);
    // A batch that is cleared forgets what was refused.
    let mut batch = Batch::new();
    batch.put(scores.as_tree(), "bob", "x").clear();
    batch.put(&scores, "bob", &8_u32);
    store.write(&batch)?;
    assert_eq!(scores.len()?, 2);
    Ok(())
}

#[test]
fn a_tree_gets_other_types_by_adoption_only() -> Result<()> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.pool");
    let store = Store::open(&path)?;
    let stock = store.tree("stock")?;
    stock.put("apple", 12_u32.to_be_bytes())?;
    stock.put("pear", 3_u32.to_be_bytes())?;
    // A handle may write other bytes.
    let error = store.adopt::<String, u32>("stock").unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::InUse), "{error}");
    drop(stock);
    let error = store.adopt::<String, u64>("stock").unwrap_err();
    assert!(
        matches!(error.kind(), ErrorKind::NotOfType { what: "value", .. }),
        "{error}"
    );
    assert!(error.path().is_some());
    expect_mismatch(
        store.typed::<String, u32>("stock"),
        "byte strings",
        "text -> u32",
    );
    let error = store.adopt::<String, u32>("none").unwrap_err();
    assert!(error.is_absent(), "{error}");

    let stock = store.adopt::<String, u32>("stock")?;
    assert_eq!(stock.get("pear")?, Some(3));
    drop(stock);
    store.close()?;
    let store = Options::new().read_only(true).open(&path)?;
    assert_eq!(store.typed::<String, u32>("stock")?.len()?, 2);
    let error = store.adopt_as_bytes("stock").unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::ReadOnly), "{error}");
    drop(store);

    // A typed tree gets other types whose bytes are the same, and none.
    let store = Store::open(&path)?;
    let stock = store.adopt::<Vec<u8>, [u8; 4]>("stock")?;
    stock.put(b"plum".as_slice(), &[0, 0, 0, 1])?;
    drop(stock);
    let bytes = store.adopt_as_bytes("stock")?;
    bytes.put("any", "bytes")?;
    assert_eq!((bytes.encodings(), bytes.len()?), (None, 4));
    drop(bytes);
    store.close()?;
    let store = Store::open(&path)?;
    store.tree("stock")?.put("more", "bytes")?;
    Ok(())
}

/// Once a program that had named wrong types, and then failed, left a tree that refused the right ones.
#[test]
fn an_empty_tree_takes_the_types_of_the_next_open() -> Result<()> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.pool");
    for engine in Engine::ALL {
        let store = Store::open(&path)?;
        let name = engine.name();
        let kind = TreeOptions {
            engine: *engine,
            ..TreeOptions::RECORDS
        };
        let wrong = store.typed_with::<String, u64>(name, kind)?;
        // A handle of the wrong types may still write.
        expect_mismatch(
            store.typed::<u64, String>(name),
            "text -> u64",
            "u64 -> text",
        );
        wrong.put("ada", &7)?;
        wrong.remove("ada")?;
        let view = store.snapshot()?;
        drop(wrong);
        // A view may have entries of the wrong types.
        expect_mismatch(
            store.typed::<u64, String>(name),
            "text -> u64",
            "u64 -> text",
        );
        drop(view);
        let right = store.typed::<u64, String>(name)?;
        right.put(&7, "ada")?;
        drop(right);
        expect_mismatch(
            store.typed::<String, u64>(name),
            "u64 -> text",
            "text -> u64",
        );
        store.close()?;
        let store = Store::open(&path)?;
        assert_eq!(store.typed::<u64, String>(name)?.len()?, 1);
        drop(store.tree_with(&format!("{name} bytes"), kind)?);
        store.close()?;
        // A store that is only read changes nothing.
        let reader = Options::new().read_only(true).open(&path)?;
        expect_mismatch(
            reader.typed::<u64, u64>(&format!("{name} bytes")),
            "byte strings",
            "u64 -> u64",
        );
        drop(reader);
        let store = Store::open(&path)?;
        store
            .typed::<u64, u64>(&format!("{name} bytes"))?
            .put(&1, &2)?;
        store.close()?;
    }
    Ok(())
}

/// A value of one number, which is 4 bytes long in version 1, and 8 in version 2.
#[derive(Clone, PartialEq, Debug)]
struct CountV1(u32);
#[derive(Clone, PartialEq, Debug)]
struct Count(u64);

impl EncodedValue for CountV1 {
    fn value_encoding() -> Encoding {
        Encoding::new("count", 1)
    }

    fn encode_value(&self, bytes: &mut Vec<u8>) -> std::result::Result<(), NotEncodable> {
        bytes.extend(self.0.to_be_bytes());
        Ok(())
    }

    fn decode_value(bytes: &[u8]) -> Option<Self> {
        Some(Self(u32::from_be_bytes(bytes.try_into().ok()?)))
    }
}

impl EncodedValue for Count {
    fn value_encoding() -> Encoding {
        Encoding::new("count", 2).reads_too(CountV1::value_encoding())
    }

    fn encode_value(&self, bytes: &mut Vec<u8>) -> std::result::Result<(), NotEncodable> {
        if self.0 == u64::MAX {
            let why = "the count is too high".to_owned();
            return Err(NotEncodable { why });
        }
        bytes.extend(self.0.to_be_bytes());
        Ok(())
    }

    fn decode_value(bytes: &[u8]) -> Option<Self> {
        match CountV1::decode_value(bytes) {
            Some(old) => Some(Self(old.0.into())),
            None => Some(Self(u64::from_be_bytes(bytes.try_into().ok()?))),
        }
    }
}

#[test]
fn a_newer_version_of_a_type_reads_the_older_one_and_keeps_it_out_from_then_on() -> Result<()> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.pool");
    let store = Store::open(&path)?;
    store
        .typed::<u64, CountV1>("counts")?
        .put(&1, &CountV1(7))?;
    store.close()?;
    // A store that is only read remembers nothing.
    let reader = Options::new().read_only(true).open(&path)?;
    let counts = reader.typed::<u64, Count>("counts")?;
    assert_eq!(counts.get(&1)?, Some(Count(7)));
    drop((counts, reader));
    let store = Store::open(&path)?;
    let old = store.typed::<u64, CountV1>("counts")?;
    let new = store.typed::<u64, Count>("counts")?;
    assert_eq!(new.get(&1)?, Some(Count(7)));
    // A handle of the older version still writes what the newer one reads.
    old.put(&2, &CountV1(8))?;
    new.put(&3, &Count(1 << 40))?;
    assert_eq!(
        new.get_many([&2, &3])?,
        [Some(Count(8)), Some(Count(1 << 40))]
    );
    assert!(old.get(&3).is_err());
    drop((old, new));
    for store in [store.clone(), store] {
        expect_mismatch(
            store.typed::<u64, CountV1>("counts"),
            "u64 -> count:2",
            "u64 -> count:1",
        );
    }
    let store = Store::open(&path)?;
    expect_mismatch(
        store.typed::<u64, CountV1>("counts"),
        "u64 -> count:2",
        "u64 -> count:1",
    );
    assert_eq!(store.typed::<u64, Count>("counts")?.len()?, 3);
    Ok(())
}

#[test]
fn a_value_without_an_encoding_is_refused_and_nothing_is_written() -> Result<()> {
    let store = Store::in_memory()?;
    let counts = store.typed::<u64, Count>("counts")?;
    let other = store.tree("other")?;
    let bad = Count(u64::MAX);
    let mut batch = Batch::new();
    batch.put(&other, "key", "value").put(&counts, &1_u64, &bad);
    let mut condition = Batch::new();
    condition
        .expect(&counts, &1_u64, Some(&bad))
        .put(&other, "key", "value");
    let refused = [
        counts.put(&1, &bad).err(),
        counts.pending().put(&1, &bad).err(),
        counts.bulk_load([(1, bad.clone())], 1.0).err(),
        store.write(&batch).err(),
        store.write(&condition).err(),
        store.transaction(|tx| tx.put(&counts, &1_u64, &bad)).err(),
    ];
    for (number, error) in refused.into_iter().enumerate() {
        let error = error.unwrap_or_else(|| panic!("write {number} was not refused"));
        assert!(
            matches!(error.kind(), ErrorKind::NotEncodable { .. }),
            "{number}: {error}"
        );
        assert!(
            error.to_string().contains("the count is too high"),
            "{error}"
        );
    }
    assert!(counts.is_empty()? && other.is_empty()?);
    Ok(())
}

#[test]
fn encodings_have_the_names_that_the_docs_say() {
    fn name<K: Key + ?Sized>() -> String {
        K::encoding().name().to_owned()
    }
    assert_eq!(name::<u8>(), "u8");
    assert_eq!(name::<i128>(), "i128");
    assert_eq!(name::<f32>(), "f32");
    assert_eq!(name::<bool>(), "bool");
    assert_eq!(name::<char>(), "char");
    assert_eq!(name::<()>(), "()");
    assert_eq!(name::<str>(), name::<String>());
    assert_eq!(name::<[u8]>(), name::<Vec<u8>>());
    assert_eq!(name::<[u8; 16]>(), "bytes[16]");
    assert_eq!(
        name::<(String, Option<u64>, (u8, Vec<u8>))>(),
        "(text,option(u64),(u8,bytes))"
    );
}

#[test]
fn names_that_cannot_be_remembered_are_refused() -> Result<()> {
    struct Odd<const CASE: u8>;
    impl<const CASE: u8> EncodedValue for Odd<CASE> {
        fn value_encoding() -> Encoding {
            match CASE {
                0 => Encoding::new("two words", 1),
                1 => Encoding::new(&"x".repeat(300), 1),
                _ => Encoding::new("a\nb", 1),
            }
        }

        fn encode_value(&self, _bytes: &mut Vec<u8>) -> std::result::Result<(), NotEncodable> {
            Ok(())
        }

        fn decode_value(_bytes: &[u8]) -> Option<Self> {
            Some(Self)
        }
    }

    let store = Store::in_memory()?;
    let errors = [
        store.typed::<u64, Odd<0>>("t").err(),
        store.typed::<u64, Odd<1>>("t").err(),
        store.typed::<u64, Odd<2>>("t").err(),
    ];
    for error in errors {
        let error = error.expect("a name that no tree can remember");
        assert!(
            matches!(error.kind(), ErrorKind::BadEncoding { .. }),
            "{error}"
        );
    }
    assert_eq!(store.trees()?, []);
    Ok(())
}

/// A tree of words has `u64`s, whether it remembers that or not.
#[test]
fn a_tree_of_words_may_have_types_of_eight_bytes() -> Result<()> {
    let store = Store::in_memory()?;
    let words = store.word_tree("words")?;
    words.put(7, 49)?;
    assert_eq!(store.typed::<u64, u64>("words")?.first()?, Some((7, 49)));
    assert_eq!(words.as_tree().typed::<u64, u64>()?.len()?, 1);
    expect_mismatch(store.typed::<i64, u64>("words"), "u64 -> u64", "i64 -> u64");
    let remembered = store.typed_with::<u64, u64>("remembered", TreeOptions::WORDS)?;
    store.word_tree("remembered")?.put(1, 2)?;
    assert_eq!(remembered.get(&1)?, Some(2));

    let temperatures = store.typed_with::<i64, f64>("temperatures", TreeOptions::WORDS)?;
    temperatures.put(&-3, &21.5)?;
    assert_eq!(temperatures.first()?, Some((-3, 21.5)));
    assert!(temperatures.as_tree().as_words().is_none());
    expect_mismatch(store.word_tree("temperatures"), "i64 -> f64", "u64 -> u64");
    Ok(())
}
