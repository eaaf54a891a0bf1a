//! Methods that are the same in every engine whose entries are the two words of a codec. They are
//! macros, so that each engine is compiled as if it contained them.
//!
//! Such an engine has a constant `ENGINE`, and the methods `find`, `find_many`, `store`, `erase`
//! and, for words, `visit_words`; and it has [`Leaves`](crate::kit::scan::Leaves).

/// Methods of [`Index`](crate::index::Index), for an engine with the codec `C`.
#[macro_export]
macro_rules! methods_of_entries {
    () => {
        fn engine(&self) -> &'static str {
            Self::ENGINE.1
        }

        fn codec(&self) -> &'static str {
            C::NAME
        }

        fn read_into(
            &self,
            key: &[u8],
            value: &mut Vec<u8>,
        ) -> $crate::Result<$crate::index::Observed<bool>> {
            value.clear();
            let found = self
                .find(C::key(key)?, |guard, words| {
                    C::copy_value(guard, words, value)
                })
                .map_err(|error| error.of_key(key))?;
            Ok(found.map(|copied| copied.is_some()))
        }

        fn write(
            &self,
            key: &[u8],
            value: Option<&[u8]>,
            condition: $crate::index::Condition<&[u8]>,
        ) -> $crate::Result<$crate::index::Written> {
            let coded_key = C::key(key)?;
            let condition = condition.try_map(C::value)?;
            let written = match value {
                Some(value) => self.store(coded_key, C::value(value)?, condition),
                None => self.erase(coded_key, condition),
            };
            written.map_err(|error| error.of_key(key))
        }

        fn read_many(
            &self,
            keys: &[&[u8]],
        ) -> $crate::Result<$crate::index::Observed<Vec<Option<$crate::index::Value>>>> {
            let coded_keys = keys
                .iter()
                .map(|key| C::key(key))
                .collect::<$crate::Result<Vec<_>>>()?;
            let mut values = vec![None; keys.len()];
            let lsn = self.find_many(&coded_keys, |guard, position, words| {
                if let Some(words) = words {
                    let mut value = Vec::new();
                    C::copy_value(guard, words, &mut value)
                        .map_err(|error| error.of_key(keys[position]))?;
                    values[position] = Some($crate::index::Value::from_vec(value));
                }
                Ok(())
            })?;
            Ok($crate::index::Observed { value: values, lsn })
        }

        fn cursor<'i>(
            &'i self,
            bounds: $crate::index::Bounds,
            direction: $crate::index::Direction,
        ) -> $crate::Result<Box<dyn $crate::index::Scan + 'i>> {
            Ok(Box::new($crate::kit::scan::LeafBatches::cursor(
                self, bounds, direction,
            )))
        }

        fn find_evacuated(
            &self,
            evacuated: &mut $crate::index::EvacuatedKeys,
        ) -> $crate::Result<()> {
            $crate::kit::relocate::keys_evacuated::<M, C, _>(self, evacuated)
        }

        fn move_record(&self, key: &[u8]) -> $crate::Result<$crate::index::Moved> {
            let coded_key = C::key(key)?;
            // The pin begins before the entry is read: see `relocate`.
            let guard = $crate::kit::scan::Leaves::<M, C>::pool(self).pin();
            let moved = match self.find(coded_key, |_, words| Ok(words)) {
                Ok($crate::index::Observed {
                    value: Some(words), ..
                }) => $crate::kit::relocate::relocate::<M, C>(&guard, words, |copy| {
                    self.store(coded_key, C::value(&[])?, copy.condition())
                }),
                Ok(_) => Ok($crate::index::Moved::NotEvacuated),
                Err(error) => Err(error),
            };
            moved.map_err(|error| error.of_key(key))
        }

        fn move_node(&self, low: &[u8]) -> $crate::Result<$crate::index::Moved> {
            $crate::kit::scan::Leaves::<M, C>::move_leaf(self, low)
        }

        fn words(&self) -> Option<&dyn $crate::index::WordIndex> {
            $crate::index::MaybeWords::maybe_words(self)
        }
    };
}

/// Further methods of [`Index`](crate::index::Index), for an engine with the methods `load`,
/// `verify`, `figures` and `give_back`.
#[macro_export]
macro_rules! methods_of_trees {
    () => {
        fn bulk_load(
            &self,
            next: &mut $crate::index::NextEntry<'_>,
            fill: f64,
        ) -> $crate::Result<u64> {
            self.load(next, fill)
        }

        fn check(&self) -> $crate::Result<Vec<$crate::index::Violation>> {
            self.verify()
        }

        fn stat(&self) -> $crate::Result<$crate::index::IndexStat> {
            self.figures()
        }

        fn destroy(&self) -> $crate::Result<()> {
            self.give_back()
        }
    };
}

/// [`WordIndex`](crate::index::WordIndex) for an engine with words, and
/// [`MaybeWords`](crate::index::MaybeWords) for its codecs.
#[macro_export]
macro_rules! words_of_entries {
    ($tree:ident $(, $format:ident: $bound:path)?) => {
        impl<M: $crate::medium::Medium $(, $format: $bound)?> $crate::index::MaybeWords for $tree<M, $crate::index::WordCodec $(, $format)?> {
            fn maybe_words(&self) -> Option<&dyn $crate::index::WordIndex> {
                Some(self)
            }
        }

        impl<M: $crate::medium::Medium $(, $format: $bound)?> $crate::index::MaybeWords for $tree<M, $crate::index::RecordCodec $(, $format)?> {
            fn maybe_words(&self) -> Option<&dyn $crate::index::WordIndex> {
                None
            }
        }

        impl<M: $crate::medium::Medium $(, $format: $bound)?> $crate::index::WordIndex for $tree<M, $crate::index::WordCodec $(, $format)?> {
            #[inline]
            fn read(&self, key: u64) -> $crate::Result<$crate::index::Observed<Option<u64>>> {
                self.find(key, |_, words| Ok(words[1]))
            }

            fn write(
                &self,
                key: u64,
                value: Option<u64>,
                condition: $crate::index::Condition<u64>,
            ) -> $crate::Result<$crate::index::Written> {
                match value {
                    Some(value) => self.store(key, value, condition),
                    None => self.erase(key, condition),
                }
            }

            fn read_many(
                &self,
                keys: &[u64],
                values: &mut [Option<u64>],
            ) -> $crate::Result<$crate::medium::Lsn> {
                self.find_many(keys, |_, position, words| {
                    values[position] = words.map(|words| words[1]);
                    Ok(())
                })
            }

            fn visit(
                &self,
                from: u64,
                visit: &mut $crate::index::VisitWords<'_>,
            ) -> $crate::Result<$crate::medium::Lsn> {
                self.visit_words(from, visit)
            }

            fn wait(&self, lsn: $crate::medium::Lsn) -> $crate::Result<()> {
                $crate::index::Index::wait(self, lsn)
            }
        }
    };
}
