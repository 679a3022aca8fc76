-- The first three ranks of a count.
-- sources: bid
CREATE TABLE hot_items_by_rank AS WITH n AS (
    SELECT auction, window_start, COUNT(*) AS num
    FROM TABLE(HOP(TABLE bid, DESCRIPTOR(dateTime), INTERVAL '2' SECOND, INTERVAL '10' SECOND))
    GROUP BY auction, window_start)
 SELECT auction, window_start, num FROM (
   SELECT auction, window_start, num, RANK() OVER (PARTITION BY window_start ORDER BY num DESC) AS place FROM n) q
 WHERE place <= 3;

-- answer
WITH n AS (SELECT auction, window_start, count(*) AS num FROM hops(bid, 2000, 10000) GROUP BY ALL)
SELECT auction, window_start, num FROM n QUALIFY rank() OVER (PARTITION BY window_start ORDER BY num DESC) <= 3

-- next
-- Top-n over a join.
-- sources: auction bid
CREATE TABLE lowest_two AS SELECT id, bidder, price, rn FROM (
    SELECT a.id, b.bidder, b.price, ROW_NUMBER() OVER (PARTITION BY a.id ORDER BY b.price, b.dateTime, b.bidder) AS rn
    FROM auction a JOIN bid b WITHIN UNBOUNDED ON a.id = b.auction
    WHERE b.dateTime BETWEEN a.dateTime AND a.expires) q
  WHERE rn <= 2;

-- answer
SELECT id, bidder, price, rn FROM (
    SELECT a.id, b.bidder, b.price, ROW_NUMBER() OVER (PARTITION BY a.id ORDER BY b.price, b.dateTime, b.bidder) AS rn
    FROM auction a JOIN bid b ON a.id = b.auction
    WHERE b.dateTime BETWEEN a.dateTime AND a.expires) q
  WHERE rn <= 2

-- next
-- A range of ranks.
-- sources: auction bid
CREATE TABLE second_to_fourth AS SELECT id, bidder, price, rn FROM (
    SELECT a.id, b.bidder, b.price, ROW_NUMBER() OVER (PARTITION BY a.id ORDER BY b.price DESC, b.dateTime, b.bidder) AS rn
    FROM auction a JOIN bid b WITHIN UNBOUNDED ON a.id = b.auction AND b.dateTime BETWEEN a.dateTime AND a.expires) q
  WHERE rn BETWEEN 2 AND 4;

-- answer
SELECT id, bidder, price, rn FROM (
    SELECT a.id, b.bidder, b.price, ROW_NUMBER() OVER (PARTITION BY a.id ORDER BY b.price DESC, b.dateTime, b.bidder) AS rn
    FROM auction a JOIN bid b ON a.id = b.auction AND b.dateTime BETWEEN a.dateTime AND a.expires) q
  WHERE rn BETWEEN 2 AND 4

-- next
-- The first row of each key.
-- sources: bid
CREATE TABLE first_bid AS SELECT auction, bidder, price, dateTime FROM (
    SELECT *, ROW_NUMBER() OVER (PARTITION BY auction ORDER BY dateTime, price, bidder) AS rn FROM bid) q
  WHERE rn = 1;

-- answer
SELECT auction, bidder, price, dateTime FROM (
    SELECT *, ROW_NUMBER() OVER (PARTITION BY auction ORDER BY dateTime, price, bidder) AS rn FROM bid) q
  WHERE rn = 1

-- next
-- DENSE_RANK, ties kept.
-- sources: bid
CREATE TABLE dense_rank AS SELECT bidder, price, r FROM (
    SELECT bidder, price, DENSE_RANK() OVER (PARTITION BY bidder ORDER BY price DESC) AS r FROM bid WHERE price < 1000) q
  WHERE r <= 2;

-- answer
SELECT bidder, price, r FROM (
    SELECT bidder, price, DENSE_RANK() OVER (PARTITION BY bidder ORDER BY price DESC) AS r FROM bid WHERE price < 1000) q
  WHERE r <= 2

-- next
-- RANK over an aggregate, without PARTITION BY.
-- sources: auction
CREATE TABLE ranked_sellers AS SELECT seller, n, RANK() OVER (ORDER BY n DESC) AS place FROM (
  SELECT seller, COUNT(*) AS n FROM auction GROUP BY seller) q;

-- answer
SELECT seller, n, RANK() OVER (ORDER BY n DESC) AS place FROM (
  SELECT seller, COUNT(*) AS n FROM auction GROUP BY seller) q

-- next
-- LAG.
-- sources: bid
CREATE TABLE price_steps AS SELECT auction, dateTime, bidder, price, price - LAG(price) OVER (PARTITION BY auction ORDER BY dateTime, bidder, price) AS d FROM bid WHERE price > 10000000;

-- answer
SELECT auction, dateTime, bidder, price, price - LAG(price) OVER (PARTITION BY auction ORDER BY dateTime, bidder, price) AS d FROM bid WHERE price > 10000000

-- next
-- ROWS frames.
-- sources: auction
CREATE TABLE running_sums AS SELECT id, seller, SUM(reserve) OVER (PARTITION BY seller ORDER BY id ROWS BETWEEN 2 PRECEDING AND CURRENT ROW) AS s,
 COUNT(*) OVER (PARTITION BY seller ORDER BY id ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS n FROM auction;

-- answer
SELECT id, seller, SUM(reserve) OVER (PARTITION BY seller ORDER BY id ROWS BETWEEN 2 PRECEDING AND CURRENT ROW) AS s,
 COUNT(*) OVER (PARTITION BY seller ORDER BY id ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS n FROM auction

-- next
-- A frame over the first rows of a join.
-- sources: auction bid
CREATE TABLE best_of_four AS
  SELECT seller, id, MAX(final) OVER (PARTITION BY seller ORDER BY closed, id ROWS BETWEEN 3 PRECEDING AND CURRENT ROW) AS top
  FROM (
    SELECT a.id, a.seller, b.price AS final, b.dateTime AS closed,
           ROW_NUMBER() OVER (PARTITION BY a.id ORDER BY b.price DESC, b.dateTime) AS rn
    FROM auction a JOIN bid b WITHIN UNBOUNDED ON a.id = b.auction
    WHERE b.dateTime BETWEEN a.dateTime AND a.expires) q
  WHERE rn = 1;

-- answer
SELECT seller, id, MAX(final) OVER (PARTITION BY seller ORDER BY closed, id ROWS BETWEEN 3 PRECEDING AND CURRENT ROW) AS top
  FROM (
    SELECT a.id, a.seller, b.price AS final, b.dateTime AS closed,
           ROW_NUMBER() OVER (PARTITION BY a.id ORDER BY b.price DESC, b.dateTime) AS rn
    FROM auction a JOIN bid b ON a.id = b.auction
    WHERE b.dateTime BETWEEN a.dateTime AND a.expires) q
  WHERE rn = 1

-- next
-- Top-n by window and key.
-- sources: bid
CREATE TABLE best_of_window AS SELECT auction, price, bidder, dateTime, window_start, rn FROM (
    SELECT *, ROW_NUMBER() OVER (PARTITION BY window_start, auction ORDER BY price DESC, dateTime, bidder) AS rn
    FROM TABLE(TUMBLE(TABLE bid, DESCRIPTOR(dateTime), INTERVAL '30' SECOND))) q
  WHERE rn <= 3;

-- answer
SELECT auction, price, bidder, dateTime, window_start, rn FROM (
    SELECT *, ROW_NUMBER() OVER (PARTITION BY window_start, auction ORDER BY price DESC, dateTime, bidder) AS rn
    FROM hops(bid, 30000, 30000)) q
  WHERE rn <= 3

-- next
-- Top-n of an aggregate.
-- sources: bid
CREATE TABLE busiest_bidders AS SELECT bidder, n FROM (SELECT bidder, n, ROW_NUMBER() OVER (PARTITION BY g ORDER BY n DESC, bidder) AS rn FROM (
  SELECT bidder % 5 AS g, bidder, COUNT(*) AS n FROM bid GROUP BY bidder % 5, bidder) q) r WHERE rn <= 4;

-- answer
SELECT bidder, n FROM (SELECT bidder, n, ROW_NUMBER() OVER (PARTITION BY g ORDER BY n DESC, bidder) AS rn FROM (
  SELECT bidder % 5 AS g, bidder, COUNT(*) AS n FROM bid GROUP BY bidder % 5, bidder) q) r WHERE rn <= 4

-- next
-- DENSE_RANK of sums in thirty windows per row.
-- sources: bid
CREATE TABLE biggest_spenders AS WITH n AS (
  SELECT bidder, window_start, SUM(price) AS total FROM TABLE(HOP(TABLE bid, DESCRIPTOR(dateTime), INTERVAL '1' SECOND, INTERVAL '30' SECOND))
  GROUP BY bidder, window_start)
 SELECT bidder, window_start, total, place FROM (SELECT n.*, DENSE_RANK() OVER (PARTITION BY window_start ORDER BY total DESC) AS place FROM n) q WHERE place <= 2;

-- answer
WITH n AS (SELECT bidder, window_start, SUM(price) AS total FROM hops(bid, 1000, 30000) GROUP BY ALL)
 SELECT bidder, window_start, total, place FROM (SELECT n.*, DENSE_RANK() OVER (PARTITION BY window_start ORDER BY total DESC) AS place FROM n) q WHERE place <= 2

-- next
-- Top-n of everything.
-- sources: bid
CREATE TABLE dearest_hundred AS SELECT auction, price, bidder, rn FROM (SELECT auction, price, bidder, ROW_NUMBER() OVER (ORDER BY price DESC, dateTime, bidder) AS rn FROM bid) q WHERE rn <= 100;

-- answer
SELECT auction, price, bidder, rn FROM (SELECT auction, price, bidder, ROW_NUMBER() OVER (ORDER BY price DESC, dateTime, bidder) AS rn FROM bid) q WHERE rn <= 100

-- next
-- QUALIFY.
-- sources: bid
CREATE TABLE qualified AS SELECT auction, bidder, price, dateTime FROM bid QUALIFY ROW_NUMBER() OVER (PARTITION BY auction ORDER BY price DESC, dateTime, bidder) <= 3;

-- answer
SELECT auction, bidder, price, dateTime FROM bid QUALIFY ROW_NUMBER() OVER (PARTITION BY auction ORDER BY price DESC, dateTime, bidder) <= 3

-- next
-- Several calls with different windows.
-- sources: bid
CREATE TABLE rank_and_count AS SELECT auction, price, place, n FROM (
  SELECT auction, price, bidder, RANK() OVER (PARTITION BY auction ORDER BY price DESC) AS place, COUNT(*) OVER (PARTITION BY auction) AS n FROM bid WHERE price > 1000000) q WHERE place = 1;

-- answer
SELECT auction, price, place, n FROM (
  SELECT auction, price, bidder, RANK() OVER (PARTITION BY auction ORDER BY price DESC) AS place, COUNT(*) OVER (PARTITION BY auction) AS n FROM bid WHERE price > 1000000) q WHERE place = 1

-- next
-- QUALIFY by an alias, over an aggregate.
-- sources: bid
CREATE TABLE qualified_alias AS SELECT seller, total, ROW_NUMBER() OVER (PARTITION BY g ORDER BY total DESC, seller) AS rn FROM (
 SELECT bidder AS seller, bidder % 3 AS g, SUM(price) AS total FROM bid GROUP BY bidder, bidder % 3) q QUALIFY rn <= 5;

-- answer
SELECT seller, total, ROW_NUMBER() OVER (PARTITION BY g ORDER BY total DESC, seller) AS rn FROM (
 SELECT bidder AS seller, bidder % 3 AS g, SUM(price) AS total FROM bid GROUP BY bidder, bidder % 3) q QUALIFY rn <= 5

-- next
-- Top-n of counts in hopping windows.
-- sources: bid
CREATE TABLE busiest_channels AS SELECT window_start, channel, n FROM (
 SELECT window_start, channel, n, ROW_NUMBER() OVER (PARTITION BY window_start ORDER BY n DESC, channel) AS rn FROM (
   SELECT window_start, channel, COUNT(*) AS n FROM TABLE(HOP(TABLE bid, DESCRIPTOR(dateTime), INTERVAL '3' SECOND, INTERVAL '9' SECOND)) GROUP BY window_start, channel) p) q WHERE rn <= 2;

-- answer
SELECT window_start, channel, n FROM (
 SELECT window_start, channel, n, ROW_NUMBER() OVER (PARTITION BY window_start ORDER BY n DESC, channel) AS rn FROM (
   SELECT window_start, channel, COUNT(*) AS n FROM hops(bid, 3000, 9000) GROUP BY window_start, channel) p) q WHERE rn <= 2

-- next
-- RANK over a join of windows.
-- sources: bid auction
CREATE TABLE ranks_of_join AS SELECT category, window_start, price, place FROM (
 SELECT a.category, b.window_start AS window_start, b.price, RANK() OVER (PARTITION BY a.category, b.window_start ORDER BY b.price DESC) AS place
 FROM TABLE(TUMBLE(TABLE bid, DESCRIPTOR(dateTime), INTERVAL '20' SECOND)) b JOIN TABLE(TUMBLE(TABLE auction, DESCRIPTOR(dateTime), INTERVAL '20' SECOND)) a
 WITHIN 20 SECONDS ON b.auction = a.id AND a.window_start = b.window_start) q WHERE place <= 5;

-- answer
SELECT category, window_start, price, place FROM (
 SELECT a.category, b.window_start AS window_start, b.price, RANK() OVER (PARTITION BY a.category, b.window_start ORDER BY b.price DESC) AS place
 FROM hops('bid', 20000, 20000) b JOIN hops('auction', 20000, 20000) a ON b.auction = a.id AND a.window_start = b.window_start) q WHERE place <= 5

-- next
-- LEAD, FIRST_VALUE, LAST_VALUE.
-- sources: auction
CREATE TABLE neighbours AS SELECT id, seller, LEAD(reserve) OVER (PARTITION BY seller ORDER BY id) AS l, FIRST_VALUE(id) OVER (PARTITION BY seller ORDER BY id) AS f, LAST_VALUE(reserve) OVER (PARTITION BY seller ORDER BY id ROWS BETWEEN CURRENT ROW AND 1 FOLLOWING) AS x FROM auction;

-- answer
SELECT id, seller, LEAD(reserve) OVER (PARTITION BY seller ORDER BY id) AS l, FIRST_VALUE(id) OVER (PARTITION BY seller ORDER BY id) AS f, LAST_VALUE(reserve) OVER (PARTITION BY seller ORDER BY id ROWS BETWEEN CURRENT ROW AND 1 FOLLOWING) AS x FROM auction
