//! A macro for functions that wrap another function.

/// Forwards all methods of `ScalarUDFImpl` except the evaluation to `self.inner`. `simplify` is not forwarded, because some
/// functions replace themselves there by a form without their wrapper.
macro_rules! as_inner {
    () => {
        fn name(&self) -> &str {
            self.inner.name()
        }

        fn aliases(&self) -> &[String] {
            self.inner.aliases()
        }

        fn schema_name(&self, args: &[::datafusion::logical_expr::Expr]) -> ::datafusion::common::Result<String> {
            self.inner.schema_name(args)
        }

        fn signature(&self) -> &::datafusion::logical_expr::Signature {
            self.inner.signature()
        }

        fn coerce_types(
            &self,
            types: &[::datafusion::arrow::datatypes::DataType],
        ) -> ::datafusion::common::Result<Vec<::datafusion::arrow::datatypes::DataType>> {
            self.inner.coerce_types(types)
        }

        fn return_type(
            &self,
            types: &[::datafusion::arrow::datatypes::DataType],
        ) -> ::datafusion::common::Result<::datafusion::arrow::datatypes::DataType> {
            self.inner.return_type(types)
        }

        fn return_field_from_args(
            &self,
            args: ::datafusion::logical_expr::ReturnFieldArgs<'_>,
        ) -> ::datafusion::common::Result<::datafusion::arrow::datatypes::FieldRef> {
            self.inner.return_field_from_args(args)
        }

        fn documentation(&self) -> Option<&::datafusion::logical_expr::Documentation> {
            self.inner.documentation()
        }
    };
}

pub(super) use as_inner;
