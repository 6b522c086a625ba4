CREATE TENANT t_1
  USER_LIST ('alice'),
  COMMENT 'a'
;
