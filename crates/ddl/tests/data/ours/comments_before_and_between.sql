-- it's ours
/* and /* nested */ don't stop */ SHOW/**/ENGINES -- here
 t_1