"""gradscope inside other programs: `watch`, pytest, notebooks, Lightning, transformers; and `trace`
called from one."""
