-- An aggregate of an aggregate of an aggregate.
-- sources: auction bid
CREATE TABLE extremes_of_averages AS SELECT parity, MAX(average) AS most, MIN(average) AS least FROM (
  SELECT category % 2 AS parity, category, AVG(final) AS average FROM (
    SELECT a.id, a.category, MIN(b.price) AS final
    FROM auction a JOIN bid b WITHIN UNBOUNDED ON a.id = b.auction
    WHERE b.dateTime BETWEEN a.dateTime AND a.expires
    GROUP BY a.id, a.category) q
  GROUP BY category % 2, category) r
 GROUP BY parity;

-- answer
SELECT parity, MAX(average) AS most, MIN(average) AS least FROM (
  SELECT category % 2 AS parity, category, AVG(final) AS average FROM (
    SELECT a.id, a.category, MIN(b.price) AS final
    FROM auction a JOIN bid b ON a.id = b.auction
    WHERE b.dateTime BETWEEN a.dateTime AND a.expires
    GROUP BY a.id, a.category) q
  GROUP BY category % 2, category) r
 GROUP BY parity

-- next
-- How often each count occurs.
-- sources: bid
CREATE TABLE histogram AS SELECT c, COUNT(*) AS n FROM (SELECT bidder, COUNT(*) AS c FROM bid GROUP BY bidder) q GROUP BY c;

-- answer
SELECT c, COUNT(*) AS n FROM (SELECT bidder, COUNT(*) AS c FROM bid GROUP BY bidder) q GROUP BY c

-- next
-- MAX, MIN and AVG over rows that are taken back.
-- sources: bid
CREATE TABLE extremes_of_counts AS SELECT g, MAX(c) AS a, MIN(c) AS b, AVG(s) AS m FROM (
  SELECT bidder % 7 AS g, bidder, COUNT(*) AS c, SUM(price) AS s FROM bid GROUP BY bidder % 7, bidder) q GROUP BY g;

-- answer
SELECT g, MAX(c) AS a, MIN(c) AS b, AVG(s) AS m FROM (
  SELECT bidder % 7 AS g, bidder, COUNT(*) AS c, SUM(price) AS s FROM bid GROUP BY bidder % 7, bidder) q GROUP BY g

-- next
-- A filter over an aggregate.
-- sources: bid
CREATE TABLE counts_filtered AS SELECT auction, c FROM (SELECT auction, COUNT(*) AS c FROM bid GROUP BY auction) q WHERE c > 20;

-- answer
SELECT auction, c FROM (SELECT auction, COUNT(*) AS c FROM bid GROUP BY auction) q WHERE c > 20

-- next
-- HAVING in a subquery.
-- sources: bid
CREATE TABLE having_inside AS SELECT g, COUNT(*) AS n, SUM(c) AS s FROM (SELECT auction, auction % 4 AS g, COUNT(*) AS c FROM bid GROUP BY auction, auction % 4 HAVING COUNT(*) > 5) q GROUP BY g;

-- answer
SELECT g, COUNT(*) AS n, SUM(c) AS s FROM (SELECT auction, auction % 4 AS g, COUNT(*) AS c FROM bid GROUP BY auction, auction % 4 HAVING COUNT(*) > 5) q GROUP BY g

-- next
-- A chain of three WITH queries, filtered between.
-- sources: bid
CREATE TABLE chain AS WITH a AS (SELECT auction, bidder, COUNT(*) AS n FROM bid GROUP BY auction, bidder),
 b AS (SELECT auction, COUNT(*) AS bidders, SUM(n) AS bids FROM a GROUP BY auction),
 c AS (SELECT bidders, COUNT(*) AS auctions, AVG(bids) AS mean FROM b WHERE bids > 2 GROUP BY bidders)
 SELECT bidders, auctions, mean FROM c WHERE auctions > 1;

-- answer
WITH a AS (SELECT auction, bidder, COUNT(*) AS n FROM bid GROUP BY auction, bidder),
 b AS (SELECT auction, COUNT(*) AS bidders, SUM(n) AS bids FROM a GROUP BY auction),
 c AS (SELECT bidders, COUNT(*) AS auctions, AVG(bids) AS mean FROM b WHERE bids > 2 GROUP BY bidders)
 SELECT bidders, auctions, mean FROM c WHERE auctions > 1

-- next
-- Distinct counts over rows that are taken back.
-- sources: bid
CREATE TABLE distinct_of_counts AS SELECT n, COUNT(DISTINCT bidder % 10) AS d, COUNT(*) AS c FROM (SELECT bidder, COUNT(*) AS n FROM bid GROUP BY bidder) q GROUP BY n;

-- answer
SELECT n, COUNT(DISTINCT bidder % 10) AS d, COUNT(*) AS c FROM (SELECT bidder, COUNT(*) AS n FROM bid GROUP BY bidder) q GROUP BY n

-- next
-- HAVING over a join, averaged.
-- sources: auction bid
CREATE TABLE having_over_join AS SELECT category, AVG(n) AS per_auction, MAX(n) AS most FROM (
 SELECT a.id, a.category, COUNT(*) AS n FROM auction a JOIN bid b WITHIN UNBOUNDED ON a.id = b.auction GROUP BY a.id, a.category HAVING COUNT(*) > 1) q GROUP BY category;

-- answer
SELECT category, AVG(n) AS per_auction, MAX(n) AS most FROM (
 SELECT a.id, a.category, COUNT(*) AS n FROM auction a JOIN bid b ON a.id = b.auction GROUP BY a.id, a.category HAVING COUNT(*) > 1) q GROUP BY category

-- next
-- An aggregate of SELECT DISTINCT.
-- sources: bid
CREATE TABLE distinct_averaged AS SELECT d, AVG(n) AS mean FROM (SELECT DISTINCT auction, bidder, bidder % 3 AS d, 1 AS n FROM bid) q GROUP BY d;

-- answer
SELECT d, AVG(n) AS mean FROM (SELECT DISTINCT auction, bidder, bidder % 3 AS d, 1 AS n FROM bid) q GROUP BY d

-- next
-- FILTER and DISTINCT over rows that are taken back.
-- sources: bid
CREATE TABLE filters_over_changes AS SELECT g, MAX(c) FILTER (WHERE c < 4) AS a, AVG(c) FILTER (WHERE c > 2) AS b, COUNT(*) FILTER (WHERE s > 100000) AS n, SUM(DISTINCT c) AS d, AVG(DISTINCT c) AS e FROM (
  SELECT bidder % 7 AS g, bidder, COUNT(*) AS c, SUM(price) AS s FROM bid GROUP BY bidder % 7, bidder) q GROUP BY g;

-- answer
SELECT g, MAX(c) FILTER (WHERE c < 4) AS a, AVG(c) FILTER (WHERE c > 2) AS b, COUNT(*) FILTER (WHERE s > 100000) AS n, SUM(DISTINCT c) AS d, AVG(DISTINCT c) AS e FROM (
  SELECT bidder % 7 AS g, bidder, COUNT(*) AS c, SUM(price) AS s FROM bid GROUP BY bidder % 7, bidder) q GROUP BY g

-- next
-- A table of last bids, and an aggregate of it.
-- sources: bid auction
CREATE TABLE latest AS SELECT auction, bidder, price FROM (SELECT auction, bidder, price, ROW_NUMBER() OVER (PARTITION BY auction ORDER BY dateTime DESC, price DESC, extra) AS rn FROM bid) q WHERE rn = 1;
CREATE TABLE latest_by_bidder AS SELECT bidder, COUNT(*) AS n, SUM(price) AS s, MAX(price) AS m FROM latest GROUP BY bidder;

-- answer
SELECT bidder, COUNT(*) AS n, SUM(price) AS s, MAX(price) AS m FROM (SELECT auction, bidder, price, ROW_NUMBER() OVER (PARTITION BY auction ORDER BY dateTime DESC, price DESC, extra) AS rn FROM bid) q WHERE rn = 1 GROUP BY bidder

-- next
-- An aggregate of the first rows of a join.
-- sources: auction bid
CREATE TABLE sold_by_seller AS SELECT seller, COUNT(*) AS sold, SUM(final) AS revenue FROM (
    SELECT a.seller, a.id, b.price AS final, ROW_NUMBER() OVER (PARTITION BY a.id ORDER BY b.price DESC, b.dateTime) AS rn
    FROM auction a JOIN bid b WITHIN UNBOUNDED ON a.id = b.auction WHERE b.dateTime BETWEEN a.dateTime AND a.expires AND b.price >= a.reserve) q
  WHERE rn = 1 GROUP BY seller HAVING COUNT(*) > 1;

-- answer
SELECT seller, COUNT(*) AS sold, SUM(final) AS revenue FROM (
    SELECT a.seller, a.id, b.price AS final, ROW_NUMBER() OVER (PARTITION BY a.id ORDER BY b.price DESC, b.dateTime) AS rn
    FROM auction a JOIN bid b ON a.id = b.auction WHERE b.dateTime BETWEEN a.dateTime AND a.expires AND b.price >= a.reserve) q
  WHERE rn = 1 GROUP BY seller HAVING COUNT(*) > 1

-- next
-- SELECT DISTINCT of an aggregate.
-- sources: bid
CREATE TABLE distinct_of_aggregate AS SELECT DISTINCT auction FROM (SELECT auction, COUNT(*) AS n FROM bid GROUP BY auction) q WHERE n > 10;

-- answer
SELECT DISTINCT auction FROM (SELECT auction, COUNT(*) AS n FROM bid GROUP BY auction) q WHERE n > 10

-- next
-- Text aggregates of SELECT DISTINCT.
-- sources: bid
CREATE TABLE grouped_distinct AS SELECT channel, COUNT(*) AS n, MAX(LCASE(url)) AS u FROM (SELECT DISTINCT channel, url FROM bid) q GROUP BY channel;

-- answer
SELECT channel, COUNT(*) AS n, MAX(LOWER(url)) AS u FROM (SELECT DISTINCT channel, url FROM bid) q GROUP BY channel
