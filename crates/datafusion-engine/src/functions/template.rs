//! Substitution of the arguments and modifiers of a call into its replacement.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    DuplicateTreatment, Expr, FunctionArguments, NullTreatment, Value, VisitorMut, WindowType,
};

/// Substitutes arguments for the placeholders of a replacement.
pub struct ArgumentFiller {
    /// The arguments, in order; each is used once.
    pub args: Vec<Expr>,
}

impl VisitorMut for ArgumentFiller {
    type Break = ();

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        if let Expr::Value(value) = &*expr
            && let Value::Placeholder(placeholder) = &value.value
            && let Some(index) = placeholder.strip_prefix('$').and_then(|number| number.parse::<usize>().ok())
            && let Some(arg) = index.checked_sub(1).and_then(|index| self.args.get_mut(index))
        {
            // Parentheses keep the precedence.
            *expr = match std::mem::replace(arg, null()) {
                leaf @ (Expr::Identifier(_)
                | Expr::CompoundIdentifier(_)
                | Expr::Value(_)
                | Expr::Function(_)
                | Expr::Lambda(_)) => leaf,
                other => Expr::Nested(Box::new(other)),
            };
        }
        ControlFlow::Continue(())
    }
}

/// A NULL, the placeholder for an expression that is moved elsewhere.
pub fn null() -> Expr {
    Expr::Value(Value::Null.into())
}

/// The modifiers of a call. They are moved to the first call in its replacement.
pub struct CallModifiers {
    /// DISTINCT.
    pub distinct: Option<DuplicateTreatment>,
    /// FILTER.
    pub filter: Option<Box<Expr>>,
    /// OVER.
    pub over: Option<WindowType>,
    /// IGNORE NULLS or RESPECT NULLS.
    pub nulls: Option<NullTreatment>,
    /// Whether they have been moved.
    pub is_moved: bool,
}

impl VisitorMut for CallModifiers {
    type Break = ();

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        if let Expr::Function(function) = expr
            && !self.is_moved
        {
            self.is_moved = true;
            (function.filter, function.over) = (self.filter.take(), self.over.take());
            function.null_treatment = self.nulls;
            if let FunctionArguments::List(list) = &mut function.args {
                list.duplicate_treatment = self.distinct;
            }
            return ControlFlow::Break(());
        }
        ControlFlow::Continue(())
    }
}
